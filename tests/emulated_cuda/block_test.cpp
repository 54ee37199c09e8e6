// Threads of a block: barriers, warp calls, and kernels that misuse them.
#include <set>

#include "device/cuda/cuda_dynamic_shared.cuh"
#include "emulated_cuda/test_support.hpp"

namespace emulated_cuda::test::block_test {
namespace {

constexpr unsigned kThreads = 256;
constexpr unsigned kAllLanes = 0xFFFFFFFFU;

enum class Barriers { all, one_missing };

/// Every block writes its threads' numbers backward.
template <Barriers barriers>
__global__ void reverse(int* out) {
  __shared__ int numbers[kThreads];
  numbers[threadIdx.x] = static_cast<int>(threadIdx.x);
  if constexpr (barriers == Barriers::all) { __syncthreads(); }
  out[blockIdx.x * blockDim.x + threadIdx.x] = numbers[blockDim.x - 1 - threadIdx.x];
  __syncthreads();
  numbers[threadIdx.x] = -1;
}

/// The sum of a block's values in a fixed order, as kernels compute it.
__device__ float block_sum(float value) {
  __shared__ float of_warp[32];
  for (int lanes = 16; lanes > 0; lanes /= 2) { value += __shfl_xor_sync(kAllLanes, value, lanes); }
  if (threadIdx.x % 32 == 0) { of_warp[threadIdx.x / 32] = value; }
  __syncthreads();
  value = threadIdx.x < blockDim.x / 32 ? of_warp[threadIdx.x] : 0.0F;
  __syncthreads();
  if (threadIdx.x >= 32) { return 0.0F; }
  for (int lanes = 16; lanes > 0; lanes /= 2) { value += __shfl_xor_sync(kAllLanes, value, lanes); }
  return value;
}

__global__ void sums(float* out) {
  const float first = block_sum(1.0F + static_cast<float>(threadIdx.x));
  const float second = block_sum(2.0F);
  if (threadIdx.x == 0) { out[blockIdx.x] = first + second; }
}

__global__ void shuffles(int* out) {
  const int lane = static_cast<int>(threadIdx.x);
  out[lane] = __shfl_sync(kAllLanes, lane, 5, 16);
  out[32 + lane] = __shfl_up_sync(kAllLanes, lane, 3);
  out[64 + lane] = __shfl_down_sync(kAllLanes, lane, 3, 8);
  out[96 + lane] = static_cast<int>(__ballot_sync(kAllLanes, lane % 2));
  out[128 + lane] = static_cast<int>(__shfl_xor_sync(kAllLanes, 0x1p900 * lane, 1) / 0x1p900);
  out[160 + lane] = static_cast<int>(__match_any_sync(kAllLanes, lane / 16));
  if (lane < 8) { out[192 + lane] = __shfl_xor_sync(0xFFU, lane, 1); }
}

__global__ void leaves_before_the_barrier(int* out) {
  if (threadIdx.x == 7) { return; }
  __syncthreads();
  out[threadIdx.x] = 1;
}

__global__ void leaves_before_the_shuffle(int* out) {
  if (threadIdx.x == 7) { return; }
  out[threadIdx.x] = __shfl_xor_sync(kAllLanes, 1, 1);
}

__global__ void shuffles_within_a_branch(int* out) {
  if (threadIdx.x < 8) {
    out[threadIdx.x] = __shfl_xor_sync(kAllLanes, 1, 1);
  } else {
    __syncwarp();
  }
}

__global__ void names_too_few_lanes(int* out) {
  out[threadIdx.x] = __shfl_xor_sync(0xFFU, 1, 1);
}

__global__ void reads_what_nobody_wrote(int* out) {
  __shared__ int numbers[kThreads];
  out[blockIdx.x * blockDim.x + threadIdx.x] = numbers[threadIdx.x];
  numbers[threadIdx.x] = 5;
}

/// Returns what its own shared array holds at first.
__device__ int called() {
  __shared__ int number;
  const int before = number;
  number = 7;
  return before;
}

__global__ void calls(int* out) {
  out[blockIdx.x] = called();
}

template <int bytes>
__global__ void keeps(int* out, int at) {
  __shared__ char array[bytes];
  array[at] = 1;
  __syncthreads();
  *out = static_cast<unsigned char>(array[bytes - 1]);
}

/// Every block writes its threads' numbers backward, through the launch's dynamic shared memory.
template <Barriers barriers>
__global__ void reverse_in_given(int* out) {
  auto* const numbers = static_cast<int*>(tessera::cuda::dynamic_shared());
  out[blockIdx.x * blockDim.x + threadIdx.x] = numbers[threadIdx.x];  // -1: undefined contents
  if constexpr (barriers == Barriers::all) { __syncthreads(); }
  numbers[threadIdx.x] = static_cast<int>(threadIdx.x);
  if constexpr (barriers == Barriers::all) { __syncthreads(); }
  out[blockIdx.x * blockDim.x + threadIdx.x] += numbers[blockDim.x - 1 - threadIdx.x];
}

__global__ void writes_given(int at) {
  static_cast<char*>(tessera::cuda::dynamic_shared())[at] = 1;
}

__global__ void recurses(int* out, int depth) {
  volatile char frame[4096];
  frame[depth % 4096] = 1;
  if (depth > 0) { recurses(out, depth - 1); }
  *out += frame[0];
}

class EmulatedBlock : public ::testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
  void TearDown() override { emulated_cuda_set_seed(1); }

  TestStream stream_;
};

TEST_F(EmulatedBlock, ThreadsMeetAtBarriers) {
  DeviceNumbers<int> out{std::size_t{4} * kThreads};
  for (int launches = 0; launches < 9; ++launches) {
    launch(reverse<Barriers::all>, Grid{4, kThreads}, stream_, out.data());
    const std::vector<int> numbers = out.read(stream_);
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      ASSERT_EQ(numbers[i], static_cast<int>(kThreads - 1 - i % kThreads)) << i;
    }
  }
}

TEST_F(EmulatedBlock, AMissingBarrierShowsInSomeOrder) {
  DeviceNumbers<int> out{std::size_t{4} * kThreads};
  std::set<std::vector<int>> results;
  for (int launches = 0; launches < 9; ++launches) {
    launch(reverse<Barriers::one_missing>, Grid{4, kThreads}, stream_, out.data());
    results.insert(out.read(stream_));
  }
  EXPECT_GT(results.size(), 1U);
}

TEST_F(EmulatedBlock, SumsOfABlockAreTheSameInEveryOrder) {
  DeviceNumbers<float> out{3};
  for (int launches = 0; launches < 9; ++launches) {
    launch(sums, Grid{3, kThreads}, stream_, out.data());
    EXPECT_EQ(out.read(stream_), std::vector<float>(3, 32896.0F + 512.0F));
  }
}

TEST_F(EmulatedBlock, LanesExchangeValues) {
  DeviceNumbers<int> out{200};
  launch(shuffles, Grid{1, 32}, stream_, out.data());
  const std::vector<int> got = out.read(stream_);
  for (int lane = 0; lane < 32; ++lane) {
    const auto at = static_cast<std::size_t>(lane);
    EXPECT_EQ(got[at], lane < 16 ? 5 : 21);
    EXPECT_EQ(got[32 + at], lane < 3 ? lane : lane - 3);
    EXPECT_EQ(got[64 + at], lane % 8 < 5 ? lane + 3 : lane);
    EXPECT_EQ(static_cast<unsigned>(got[96 + at]), 0xAAAAAAAAU);
    EXPECT_EQ(got[128 + at], lane ^ 1);
    EXPECT_EQ(static_cast<unsigned>(got[160 + at]), lane < 16 ? 0xFFFFU : 0xFFFF0000U);
    if (lane < 8) { EXPECT_EQ(got[192 + at], lane ^ 1); }
  }
}

TEST_F(EmulatedBlock, SharedMemoryHoldsNothingAtTheBeginningOfABlock) {
  DeviceNumbers<int> out{std::size_t{4} * kThreads};
  for (int launches = 0; launches < 2; ++launches) {
    launch(reads_what_nobody_wrote, Grid{4, kThreads}, stream_, out.data());
    EXPECT_EQ(out.read(stream_), std::vector<int>(std::size_t{4} * kThreads, -1));
  }
  DeviceNumbers<int> few{4};
  launch(calls, Grid{4, 1}, stream_, few.data());
  EXPECT_EQ(few.read(stream_), std::vector<int>(4, -1));
}

TEST_F(EmulatedBlock, SharedMemoryHasAnEnd) {
  DeviceNumbers<int> out{1};
  launch(keeps<49152>, Grid{1, 1}, stream_, out.data(), 49151);
  EXPECT_EQ(out.read(stream_), std::vector<int>{1});
  EXPECT_DEATH(
      {
        launch(keeps<49153>, Grid{1, 1}, stream_, out.data(), 0);
        stream_.wait();
      },
      "the shared arrays of .*keeps<49153>.* take 49153 bytes");
}

TEST_F(EmulatedBlock, ALaunchGivesEachBlockSharedMemoryThatHoldsNothing) {
  DeviceNumbers<int> out{std::size_t{4} * kThreads};
  std::set<std::vector<int>> results;
  for (int launches = 0; launches < 9; ++launches) {
    const Grid grid{.blocks = 4, .threads = kThreads, .shared_bytes = kThreads * sizeof(int)};
    launch(reverse_in_given<Barriers::all>, grid, stream_, out.data());
    const std::vector<int> numbers = out.read(stream_);
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      ASSERT_EQ(numbers[i], static_cast<int>(kThreads - 1 - i % kThreads) - 1) << i;
    }
    launch(reverse_in_given<Barriers::one_missing>, grid, stream_, out.data());
    results.insert(out.read(stream_));
  }
  EXPECT_GT(results.size(), 1U);
}

TEST_F(EmulatedBlock, SharedMemoryOfALaunchHasAnEnd) {
  const auto write = [&](int at, unsigned bytes) {
    launch(writes_given, Grid{.blocks = 1, .threads = 1, .shared_bytes = bytes}, stream_, at);
    stream_.wait();
  };
  write(99, 100);
  EXPECT_DEATH(write(100, 100), "emulated CUDA: a kernel writes around the 100 bytes of shared");
  EXPECT_DEATH(write(-1, 100), "emulated CUDA: a kernel writes around the 100 bytes of shared");
  EXPECT_DEATH(write(112, 100), "goes beyond the shared memory that its launch gave");
  EXPECT_DEATH(write(0, 0), "uses shared memory of its launch, which gave it none");
}

TEST_F(EmulatedBlock, MoreThan48KiBOfALaunchMustBeRequestedAndAreLimited) {
  cudaLaunchConfig_t config{};
  config.stream = stream_;
  config.gridDim = config.blockDim = dim3{1, 1, 1};
  const auto give = [&](std::size_t bytes) {
    config.dynamicSmemBytes = bytes;
    const cudaError_t status =
        cudaLaunchKernelEx(&config, writes_given, static_cast<int>(bytes) - 1);
    (void)cudaGetLastError();
    return status;
  };
  const std::size_t unasked = 49'152 - tessera::cuda::declared_shared_bytes(writes_given);
  EXPECT_EQ(give(unasked), cudaSuccess);
  EXPECT_EQ(give(unasked + 1), cudaErrorInvalidValue);
  struct Limit {
    int capability;
    unsigned kib;
  };
  for (const Limit limit : {Limit{75, 64}, {80, 163}, {86, 99}, {90, 227}}) {
    emulated_cuda_set_capability(limit.capability);
    const unsigned most = tessera::cuda::most_shared_bytes();
    EXPECT_EQ(most, limit.kib << 10U);
    tessera::cuda::ask_for_shared_bytes(writes_given, most);
    EXPECT_EQ(give(most), cudaSuccess);
    EXPECT_EQ(give(most + 1), cudaErrorInvalidValue);
    EXPECT_THROW(tessera::cuda::ask_for_shared_bytes(writes_given, most + 1), std::exception);
    EXPECT_EQ(tessera::cuda::resident_blocks(writes_given, 32, most), 4) << "one a multiprocessor";
  }
  emulated_cuda_set_capability(90);
  EXPECT_EQ(tessera::cuda::resident_blocks(writes_given, 32, 100 << 10U), 8);
}

TEST_F(EmulatedBlock, ABarrierThatSomeThreadsMissEndsTheProcess) {
  DeviceNumbers<int> out{64};
  EXPECT_DEATH(
      {
        launch(leaves_before_the_barrier, Grid{1, 64}, stream_, out.data());
        stream_.wait();
      },
      "emulated CUDA: .*__syncthreads.* in a kernel");
}

TEST_F(EmulatedBlock, AShuffleThatNamesLanesWhichLeftEndsTheProcess) {
  DeviceNumbers<int> out{32};
  EXPECT_DEATH(
      {
        launch(leaves_before_the_shuffle, Grid{1, 32}, stream_, out.data());
        stream_.wait();
      },
      "emulated CUDA: .*(lanes that have left|wait for each other)");
}

TEST_F(EmulatedBlock, LanesThatCallDifferentThingsEndTheProcess) {
  DeviceNumbers<int> out{32};
  EXPECT_DEATH(
      {
        launch(shuffles_within_a_branch, Grid{1, 32}, stream_, out.data());
        stream_.wait();
      },
      "emulated CUDA: lanes of a warp make different calls");
}

TEST_F(EmulatedBlock, AMaskWithoutTheCallerEndsTheProcess) {
  DeviceNumbers<int> out{32};
  EXPECT_DEATH(
      {
        launch(names_too_few_lanes, Grid{1, 32}, stream_, out.data());
        stream_.wait();
      },
      "emulated CUDA: the mask of a warp's call lacks the lane");
}

TEST_F(EmulatedBlock, ABlockSmallerThanWholeWarpsHasNoExtraLanes) {
  DeviceNumbers<int> out{200};
  EXPECT_DEATH(
      {
        launch(shuffles, Grid{1, 31}, stream_, out.data());
        stream_.wait();
      },
      "emulated CUDA: .*lanes that the block does not have");
}

TEST_F(EmulatedBlock, AStackThatIsFullEndsTheProcess) {
  DeviceNumbers<int> out{1};
  EXPECT_DEATH(
      {
        launch(recurses, Grid{1, 1}, stream_, out.data(), 200);
        stream_.wait();
      },
      "emulated CUDA: a kernel .*its stack is full|stack-overflow");
}

TEST_F(EmulatedBlock, GridsThatCudaRefusesAreRefused) {
  DeviceNumbers<int> out{1};
  cudaLaunchConfig_t config{};
  config.stream = stream_;
  config.gridDim = dim3{1, 1, 1};
  config.blockDim = dim3{1025, 1, 1};
  EXPECT_EQ(cudaLaunchKernelEx(&config, shuffles, out.data()), cudaErrorInvalidConfiguration);
  config.blockDim = dim3{32, 1, 1};
  config.gridDim = dim3{0, 1, 1};
  EXPECT_EQ(cudaLaunchKernelEx(&config, shuffles, out.data()), cudaErrorInvalidConfiguration);
  config.gridDim = dim3{1, 65536, 1};
  EXPECT_EQ(cudaLaunchKernelEx(&config, shuffles, out.data()), cudaErrorInvalidConfiguration);
  config.gridDim = dim3{1, 1, 1};
  config.stream = nullptr;
  EXPECT_EQ(cudaLaunchKernelEx(&config, shuffles, out.data()), cudaErrorInvalidResourceHandle);
}

}  // namespace
}  // namespace emulated_cuda::test::block_test
