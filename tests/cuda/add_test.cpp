// The simplest kernel: every size, every start, to the bit.
#include "cuda/support.hpp"

namespace tessera::test {
namespace {

class CudaAddTest : public CudaFixture<::testing::TestWithParam<std::int64_t>> {};
INSTANTIATE_TEST_SUITE_P(Sizes, CudaAddTest, ::testing::Values(0, 1, 31, 32, 33, 255, 257, 100003));

TEST_P(CudaAddTest, AddsAsTheCpuDoes) {
  const std::int64_t elems = GetParam();
  std::vector<float> a(static_cast<std::size_t>(elems));
  std::vector<float> b(a.size());
  std::vector<float> expected(a.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    a[i] = 0.1F * static_cast<float>(i);
    b[i] = 3.0F / static_cast<float>(i + 1);
    expected[i] = a[i] + b[i];
  }
  DeviceArray<float> da{bench(), a, 1};
  DeviceArray<float> db{bench(), b};
  DeviceArray<float> sum{bench(), elems, 3};
  table().add(da.data(), db.data(), sum.data(), elems, stream());
  EXPECT_EQ(sum.read(), expected);
}

}  // namespace
}  // namespace tessera::test
