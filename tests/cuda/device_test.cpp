// What src/device/cuda promises of a device: its memory, its copies, its errors.
#include <numeric>

#include "cuda/support.hpp"

namespace tessera::test {
namespace {

using CudaDeviceTest = CudaTest;

TEST_F(CudaDeviceTest, CopiesInAndOut) {
  std::vector<int> values(1000);
  std::iota(values.begin(), values.end(), 0);
  DeviceArray<int> array{bench(), values};
  EXPECT_EQ(array.read(), values);
}

}  // namespace
}  // namespace tessera::test
