// Only a device may access its memory: any other access is detected.
#include <cstring>

#include "emulated_cuda/test_support.hpp"

namespace emulated_cuda::test::memory_test {
namespace {

__global__ void write_at(int* data, std::int64_t at) {
  data[at] = 1;
}

__global__ void read_at(const int* data, std::int64_t at, int* out) {
  *out = data[at];
}

struct alignas(16) Four {
  int at[4];
};

__global__ void write_four(int* data) {
  *reinterpret_cast<Four*>(data) = Four{{1, 2, 3, 4}};
}

__global__ void write_shared(int* out, int at) {
  __shared__ int numbers[16];
  numbers[at] = at;
  *out = numbers[at];
}

class EmulatedMemory : public ::testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }

  void write(int* data, std::int64_t at) {
    launch(write_at, Grid{1, 1}, stream_, data, at);
    stream_.wait();
  }

  TestStream stream_;
};

TEST_F(EmulatedMemory, StartsFilledWithOnes) {
  const DeviceNumbers<int> numbers{1000};
  EXPECT_EQ(numbers.read(stream_), std::vector<int>(1000, -1));
}

TEST_F(EmulatedMemory, TheHostDiesOfReadingIt) {
  if (emulated_cuda_protects() == 0) { GTEST_SKIP() << "this processor has no protection keys"; }
  const DeviceNumbers<int> numbers{1000};
  EXPECT_DEATH(
      std::printf("%d", numbers.data()[1]),
      "the host touches device memory .* byte 4 of an allocation of 4000 bytes of device 0");
}

TEST_F(EmulatedMemory, TheHostDiesOfWritingIt) {
  if (emulated_cuda_protects() == 0) { GTEST_SKIP() << "this processor has no protection keys"; }
  const DeviceNumbers<int> numbers{1000};
  EXPECT_DEATH(std::memset(numbers.data(), 0, 4000), "the host touches device memory");
}

TEST_F(EmulatedMemory, AHostFunctionDiesOfAMisuseToo) {
  if (emulated_cuda_protects() == 0) { GTEST_SKIP() << "this processor has no protection keys"; }
  const DeviceNumbers<int> numbers{1000};
  const auto touch = [](void* data) { *static_cast<int*>(data) = 1; };
  EXPECT_DEATH(
      {
        check(cudaLaunchHostFunc(stream_, touch, numbers.data()), "cudaLaunchHostFunc");
        stream_.wait();
      },
      "cudaLaunchHostFunc was given touches device memory");
}

TEST_F(EmulatedMemory, AKernelDiesOfAccessBeyondAnAllocation) {
  const DeviceNumbers<int> numbers{64};
  EXPECT_DEATH(write(numbers.data(), 64),
               "a kernel .* touches device memory .* 0 bytes behind the end of an allocation");
  EXPECT_DEATH(
      {
        launch(read_at, Grid{1, 1}, stream_, numbers.data(), std::int64_t{64}, numbers.data());
        stream_.wait();
      },
      "a kernel .* touches device memory");
}

TEST_F(EmulatedMemory, WritesBetweenAnAllocationAndItsPagesAreFoundWhenItIsFreed) {
  for (const std::int64_t at : {std::int64_t{-1}, std::int64_t{10}}) {
    EXPECT_DEATH(
        {
          const DeviceNumbers<int> numbers{10};
          write(numbers.data(), at);
        },
        at < 0 ? "written before an allocation of 40 bytes" : "written behind an allocation");
  }
}

TEST_F(EmulatedMemory, AKernelDiesOfAccessToFreedMemory) {
  int* freed = nullptr;
  {
    const DeviceNumbers<int> numbers{64};
    freed = numbers.data();
  }
  const DeviceNumbers<int> others{64};  // at other addresses
  EXPECT_DEATH(write(freed, 0), "a kernel .* touches device memory");
}

TEST_F(EmulatedMemory, AKernelDiesOfAMisalignedAccess) {
  const DeviceNumbers<int> numbers{64};
  EXPECT_DEATH(
      {
        launch(write_four, Grid{1, 1}, stream_, numbers.data() + 1);
        stream_.wait();
      },
      "a kernel .* misaligned|misaligned address");
}

TEST_F(EmulatedMemory, AKernelDiesOfGoingBeyondASharedArray) {
  const DeviceNumbers<int> numbers{64};
  EXPECT_DEATH(
      {
        launch(write_shared, Grid{1, 1}, stream_, numbers.data(), 16);
        stream_.wait();
      },
      "a kernel .* goes beyond an array|out of bounds");
}

TEST_F(EmulatedMemory, IsCountedAndRunsOut) {
  std::size_t before = 0;
  std::size_t total = 0;
  check(cudaMemGetInfo(&before, &total), "cudaMemGetInfo");
  EXPECT_EQ(before, total);
  void* data = nullptr;
  EXPECT_EQ(cudaMalloc(&data, total + 1), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaGetLastError(), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  emulated_cuda_set_device_bytes(4096);
  EXPECT_EQ(cudaMalloc(&data, 4096), cudaSuccess);
  void* more = nullptr;
  EXPECT_EQ(cudaMalloc(&more, 1), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaFree(data), cudaSuccess);
  EXPECT_EQ(cudaFree(data), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMalloc(&more, 1), cudaSuccess);
  EXPECT_EQ(cudaFree(more), cudaSuccess);
  emulated_cuda_set_device_bytes(total);
}

TEST_F(EmulatedMemory, CopiesSayWhereTheyGo) {
  const DeviceNumbers<int> numbers{64};
  int host[64] = {};
  const auto copy = [&](void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
    return cudaMemcpyAsync(to, from, bytes, kind, stream_);
  };
  EXPECT_EQ(copy(numbers.data(), host, 256, cudaMemcpyHostToDevice), cudaSuccess);
  EXPECT_EQ(copy(host, numbers.data(), 256, cudaMemcpyDefault), cudaSuccess);
  EXPECT_EQ(copy(host, numbers.data(), 256, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  EXPECT_EQ(copy(numbers.data(), host, 256, cudaMemcpyDeviceToDevice), cudaErrorInvalidValue);
  EXPECT_EQ(copy(numbers.data() + 1, host, 256, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  EXPECT_EQ(copy(numbers.data(), nullptr, 256, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  EXPECT_EQ(copy(nullptr, nullptr, 0, cudaMemcpyHostToDevice), cudaSuccess);
  EXPECT_EQ(cudaMemcpyAsync(numbers.data(), host, 4, cudaMemcpyHostToDevice, nullptr),
            cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaMemsetAsync(host, 0, 4, stream_), cudaErrorInvalidValue);
  stream_.wait();
}

TEST_F(EmulatedMemory, PointersNameTheirDevice) {
  const DeviceNumbers<int> numbers{64};
  void* pinned = nullptr;
  check(cudaMallocHost(&pinned, 100), "cudaMallocHost");
  int host = 0;
  cudaPointerAttributes attributes{};
  EXPECT_EQ(cudaPointerGetAttributes(&attributes, numbers.data() + 1), cudaSuccess);
  EXPECT_EQ(attributes.type, cudaMemoryTypeDevice);
  EXPECT_EQ(cudaPointerGetAttributes(&attributes, static_cast<char*>(pinned) + 99), cudaSuccess);
  EXPECT_EQ(attributes.type, cudaMemoryTypeHost);
  EXPECT_EQ(cudaPointerGetAttributes(&attributes, &host), cudaSuccess);
  EXPECT_EQ(attributes.type, cudaMemoryTypeUnregistered);
  EXPECT_EQ(cudaFreeHost(pinned), cudaSuccess);
  EXPECT_EQ(cudaFreeHost(pinned), cudaErrorInvalidValue);
}

TEST_F(EmulatedMemory, OfAPeerIsAccessibleOnceEnabled) {
  emulated_cuda_set_devices(2);
  const DeviceNumbers<int> numbers{64};
  {
    const TestStream other{1};
    const auto write_from_other = [&] {
      check(cudaSetDevice(1), "cudaSetDevice");
      launch(write_at, Grid{1, 1}, other, numbers.data(), std::int64_t{3});
      check(cudaSetDevice(0), "cudaSetDevice");
      other.wait();
    };
    if (emulated_cuda_protects() != 0) {
      EXPECT_DEATH(write_from_other(), "a kernel .* touches device memory");
    }
    check(cudaSetDevice(1), "cudaSetDevice");
    EXPECT_EQ(cudaDeviceEnablePeerAccess(0, 0), cudaSuccess);
    EXPECT_EQ(cudaDeviceEnablePeerAccess(0, 0), cudaErrorPeerAccessAlreadyEnabled);
    EXPECT_EQ(cudaDeviceEnablePeerAccess(1, 0), cudaErrorInvalidDevice);
    check(cudaSetDevice(0), "cudaSetDevice");
    write_from_other();
    EXPECT_EQ(numbers.read(stream_)[3], 1);
    cudaLaunchConfig_t config{};
    config.gridDim = config.blockDim = dim3{1, 1, 1};
    config.stream = other;  // a stream of device 1, while device 0 is current
    EXPECT_EQ(cudaLaunchKernelEx(&config, write_four, numbers.data()),
              cudaErrorInvalidResourceHandle);
  }
  emulated_cuda_set_devices(1);
}

}  // namespace
}  // namespace emulated_cuda::test::memory_test
