#include "kernels/accumulate/accumulate.hpp"

#include "kernels/values.hpp"

namespace tessera::kernels::accumulate_test {
namespace {

class AccumulateKernels : public BackendTest {
 protected:
  struct Start {
    std::int64_t to;
    std::int64_t from;
  };
  void expect_sum(std::int64_t elems, DType to, DType from, const Start& start) {
    const Floats a = rounded(to, random_floats(elems, 1));
    const Floats b = rounded(from, random_floats(elems, 2, 0.01F));
    DeviceValues sum{bench(), a, to, start.to};
    DeviceValues more{bench(), b, from, start.from};
    table().accumulate(sum, more, elems, stream());
    Floats expected;
    for (std::size_t i = 0; i < a.size(); ++i) { expected.push_back(a[i] + b[i]); }
    EXPECT_EQ(sum.read(), encoded(expected, to))
        << elems << " " << to_string(to) << " += " << to_string(from) << " at " << start.to << ", "
        << start.from;
  }
};
INSTANTIATE_TEST_SUITE_P(Backends, AccumulateKernels, backends(), backend_name);

TEST_P(AccumulateKernels, AccumulateRoundsTheSumOnceBetweenAnyTwoDtypes) {
  for (const DType to : kValueDTypes) {
    for (const DType from : kValueDTypes) {
      for (const std::int64_t elems : kSizes) { expect_sum(elems, to, from, {3, 0}); }
      expect_sum(3000, to, from, {0, 0});
      expect_sum(3000, to, from, {5, 5});
      expect_sum(3000, to, from, {1, 6});
    }
  }
}

TEST_P(AccumulateKernels, ScaleRoundsTheProductOnce) {
  for (const DType dtype : kValueDTypes) {
    for (const std::int64_t offset : {0, 1, 7}) {
      for (const std::int64_t elems : kSizes) {
        const Floats x = rounded(dtype, random_floats(elems, 3));
        DeviceValues product{bench(), x, dtype, offset};
        table().scale(product, 0.37F, elems, stream());
        Floats expected;
        for (const float value : x) { expected.push_back(value * 0.37F); }
        EXPECT_EQ(product.read(), encoded(expected, dtype))
            << elems << " " << to_string(dtype) << " at " << offset;
      }
    }
  }
}

TEST_P(AccumulateKernels, ScaleByOneChangesNoBit) {
  const Floats before{0.0F, -0.0F, 1e-45F, kInfinity, -3.0F};
  DeviceArray<float> x{bench(), before};
  table().scale(x.data(), 1.0F, x.elems(), stream());
  EXPECT_TRUE(same_bits(x.read(), before));
}

}  // namespace
}  // namespace tessera::kernels::accumulate_test
