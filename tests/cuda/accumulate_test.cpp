#include "cuda/values.hpp"

namespace tessera::kernels {
namespace {

struct Start {
  std::int64_t to;
  std::int64_t from;
};

class CudaAccumulateTest : public CudaTest {
 protected:
  void expect_sum(std::int64_t elems, DType to, DType from, const Start& start) {
    const Floats a = random_floats(elems, 1), b = random_floats(elems, 2, 0.01F);
    DeviceValues sum{bench(), a, to, start.to};
    DeviceValues more{bench(), b, from, start.from};
    table().accumulate(sum.values(), more.values(), elems, stream());
    Bytes expected = encoded(a, to);
    const Bytes twin_more = encoded(b, from);
    twin_.table().accumulate({expected.data(), to}, {twin_more.data(), from}, elems,
                             twin_.stream());
    EXPECT_EQ(sum.read(), expected) << elems << " " << to_string(to) << " += " << to_string(from)
                                    << " at " << start.to << ", " << start.from;
  }

  CpuTwin twin_;
};

TEST_F(CudaAccumulateTest, AddsWithTheCpusBits) {
  for (const DType to : kElementTypes) {
    for (const DType from : kElementTypes) {
      for (const std::int64_t elems : kSizes) { expect_sum(elems, to, from, {0, 0}); }
      expect_sum(3000, to, from, {5, 5});
      expect_sum(3000, to, from, {1, 6});
    }
  }
}

TEST_F(CudaAccumulateTest, ScalesWithTheCpusBits) {
  for (const DType dtype : kElementTypes) {
    for (const std::int64_t offset : {0, 1, 7}) {
      for (const std::int64_t elems : kSizes) {
        const Floats x = random_floats(elems, 3);
        DeviceValues product{bench(), x, dtype, offset};
        table().scale(product.values(), 0.37F, elems, stream());
        Bytes expected = encoded(x, dtype);
        twin_.table().scale({expected.data(), dtype}, 0.37F, elems, twin_.stream());
        EXPECT_EQ(product.read(), expected) << elems << " " << to_string(dtype) << " at " << offset;
      }
    }
  }
}

}  // namespace
}  // namespace tessera::kernels
