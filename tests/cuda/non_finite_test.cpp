#include "cuda/values.hpp"

namespace tessera::kernels {
namespace {

class CudaNonFiniteTest : public CudaTest {
 protected:
  double found_in(ConstView x, double before = 0.0, double place = 7.0) {
    DeviceArray<double> found{bench(), std::vector<double>{before}};
    table().find_non_finite(x, place, found.data(), stream());
    return found.read().front();
  }
};

TEST_F(CudaNonFiniteTest, FindsOneAmongManyWhereverItIs) {
  for (const DType dtype : kElementTypes) {
    for (const std::int64_t elems : {1, 33, 257, 10'003}) {
      Floats x = random_floats(elems, 1, 1000.0F);
      DeviceValues finite{bench(), x, dtype, 1};
      EXPECT_EQ(found_in(finite.view()), 0.0);
      for (const std::int64_t at : {std::int64_t{0}, elems / 2, elems - 1}) {
        for (const float bad : {kNan, kInfinity, -kInfinity}) {
          Floats with = x;
          with[static_cast<std::size_t>(at)] = bad;
          DeviceValues device{bench(), with, dtype, at % 3};
          EXPECT_EQ(found_in(device.view()), 7.0)
              << to_string(dtype) << ", " << at << " of " << elems;
        }
      }
    }
  }
}

TEST_F(CudaNonFiniteTest, LooksAtFp64) {
  std::vector<double> x(1001, std::numeric_limits<double>::max());
  DeviceArray<double> device{bench(), x, 1};
  EXPECT_EQ(found_in({device.data(), 1001, DType::fp64}), 0.0);
  x[1000] = -std::numeric_limits<double>::infinity();
  device.write(x);
  EXPECT_EQ(found_in({device.data(), 1001, DType::fp64}), 7.0);
}

TEST_F(CudaNonFiniteTest, KeepsWhatWasFoundBefore) {
  DeviceValues nan{bench(), filled(100, kNan), DType::bf16};
  EXPECT_EQ(found_in(nan.view(), 3.0), 3.0);
  EXPECT_EQ(found_in({nullptr, 0, DType::fp32}), 0.0);
}

}  // namespace
}  // namespace tessera::kernels
