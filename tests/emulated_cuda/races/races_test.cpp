// Kernels with races, each of which ends the process, and kernels like them without.
#include <cstring>

#include "device/cuda/cuda_dynamic_shared.cuh"
#include "emulated_cuda/test_support.hpp"
#include "kernels/support/cuda/cuda_mma.cuh"

namespace emulated_cuda::test::races_test {
namespace {

using tessera::kernels::cuda::close_copies;
using tessera::kernels::cuda::copy_async;
using tessera::kernels::cuda::load_matrices;
using tessera::kernels::cuda::load_matrices_transposed;
using tessera::kernels::cuda::shared_address;
using tessera::kernels::cuda::wait_for_copies;

constexpr unsigned kThreads = 128;
constexpr unsigned kAllLanes = 0xFFFFFFFFU;

__device__ int lane() {
  return static_cast<int>(threadIdx.x % 32);
}
__device__ int global_thread() {
  return static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
}

enum class Between { nothing, barrier, warp_barrier, half_a_warp_barrier, shuffle, vote };

template <Between between>
__device__ void pass() {
  if constexpr (between == Between::barrier) { __syncthreads(); }
  if constexpr (between == Between::warp_barrier) { __syncwarp(); }
  if constexpr (between == Between::half_a_warp_barrier) {
    __syncwarp(lane() < 16 ? 0xFFFFU : 0xFFFF0000U);
  }
  if constexpr (between == Between::shuffle) { (void)__shfl_xor_sync(kAllLanes, lane(), 1); }
  if constexpr (between == Between::vote) { (void)__any_sync(kAllLanes, 1); }
}

/// Reads what the thread `distance` further has written before.
template <Between between>
__global__ void exchange(int* out, int distance) {
  __shared__ int numbers[kThreads];
  const auto own = static_cast<int>(threadIdx.x);
  numbers[own] = own;
  pass<between>();
  out[global_thread()] = numbers[own ^ distance];
}

/// Overwrites what the thread `distance` further has read before.
template <Between between>
__global__ void overwrite(int* out, int distance) {
  __shared__ int numbers[kThreads];
  const auto own = static_cast<int>(threadIdx.x);
  numbers[own] = own;
  __syncthreads();
  out[global_thread()] = numbers[own];
  pass<between>();
  numbers[own ^ distance] = 0;
}

template <Between between>
__global__ void exchange_in_given(int* out) {
  auto* const numbers = static_cast<int*>(tessera::cuda::dynamic_shared());
  numbers[threadIdx.x] = 1;
  pass<between>();
  out[global_thread()] = numbers[blockDim.x - 1 - threadIdx.x];
}

/// `readers` threads read a number, then `writer` overwrites it.
template <Between between>
__global__ void read_and_write(int* out, int first, int readers, int writer) {
  __shared__ int number;
  const auto own = static_cast<int>(threadIdx.x);
  if (own == 0) { number = 5; }
  __syncthreads();
  if (own >= first && own < first + readers) { out[global_thread()] = number; }
  pass<between>();
  if (own == writer) { number = 6; }
}

/// Each thread writes its part of a word.
template <class Part>
__global__ void parts(Part* out) {
  __shared__ Part numbers[kThreads];
  numbers[threadIdx.x] = static_cast<Part>(threadIdx.x);
  out[global_thread()] = numbers[threadIdx.x];
}

__global__ void write_at(int* out, int at) {
  out[at] = 1;
}
__global__ void write_own(int* out) {
  out[global_thread()] = 1;
}
/// Block 0 writes what the others read.
__global__ void read_of_another_block(int* out) {
  if (blockIdx.x == 0) {
    out[threadIdx.x] = 1;
  } else {
    out[global_thread()] = out[threadIdx.x];
  }
}
__global__ void copy_bytes(int* out, const int* from) {
  std::memcpy(out, from, 32 * sizeof(int));
}

__global__ void count(int* out) {
  atomicAdd(out, 1);
}
__global__ void count_and_read(int* out) {
  if (global_thread() == 0) {
    out[1] = *out;
  } else {
    atomicAdd(out, 1);
  }
}
__global__ void set_volatile(int* out) {
  auto* const flag = static_cast<volatile int*>(out);
  if (*flag != 1) { *flag = 1; }
}

enum class Fences { none, before, after, both, both_of_block };

template <Fences fences>
__device__ void fence(bool is_before) {
  if constexpr (fences == Fences::both) { __threadfence(); }
  if constexpr (fences == Fences::both_of_block) { __threadfence_block(); }
  if (fences == (is_before ? Fences::before : Fences::after)) { __threadfence(); }
}

/// Every block writes its sum; the last block to do so adds them.
template <Fences fences>
__global__ void add_in_last_block(int* sums, unsigned* arrived, int* out) {
  __shared__ bool is_last;
  sums[global_thread()] = 1;
  __syncthreads();
  if (threadIdx.x == 0) {
    fence<fences>(true);
    is_last = atomicAdd(arrived, 1U) == gridDim.x - 1;
    fence<fences>(false);
  }
  __syncthreads();
  if (!is_last) { return; }
  int sum = 0;
  for (unsigned block = 0; block < gridDim.x; ++block) {
    sum += sums[block * blockDim.x + threadIdx.x];
  }
  out[threadIdx.x] = sum;
}

/// The same for the warps of a block.
template <Fences fences>
__global__ void add_in_last_warp(int* out) {
  __shared__ int sums[kThreads];
  __shared__ unsigned arrived;
  if (threadIdx.x == 0) { arrived = 0; }
  __syncthreads();
  sums[threadIdx.x] = 1;
  __syncwarp();
  unsigned before = 0;
  if (lane() == 0) {
    fence<fences>(true);
    before = atomicAdd(&arrived, 1U);
    fence<fences>(false);
  }
  __syncwarp();
  before = __shfl_sync(kAllLanes, before, 0);
  if (before != blockDim.x / 32 - 1) { return; }
  int sum = 0;
  for (unsigned i = threadIdx.x % 32; i < blockDim.x; i += 32) { sum += sums[i]; }
  out[blockIdx.x * 32 + threadIdx.x % 32] = sum;
}

struct alignas(16) Four {
  int at[4];
};

enum class Copy { awaited_by_all, awaited, awaited_after_the_barrier, awaited_after_the_read };

/// Each thread copies four numbers, and reads those of another thread (or its own).
template <Copy copy>
__global__ void copy_late(const Four* from, int* out, int distance) {
  __shared__ Four numbers[kThreads];
  const auto own = static_cast<int>(threadIdx.x);
  copy_async(shared_address(&numbers[own]), from + own, 16);
  close_copies();
  if (copy == Copy::awaited_by_all || copy == Copy::awaited) { wait_for_copies<0>(); }
  if (copy != Copy::awaited) { __syncthreads(); }
  if (copy == Copy::awaited_after_the_barrier) { wait_for_copies<0>(); }
  out[own] = numbers[own ^ distance].at[0];
  wait_for_copies<0>();
}

/// Each lane writes the row of 8 elements whose address it gives.
template <Between between, bool transposed>
__global__ void load_rows(unsigned* out) {
  __shared__ Four rows[32];
  rows[lane()] = Four{{lane(), 2, 3, 4}};
  pass<between>();
  std::uint32_t words[4];
  if (transposed) {
    load_matrices_transposed(words, shared_address(&rows[lane()]));
  } else {
    load_matrices(words, shared_address(&rows[lane()]));
  }
  out[lane()] = words[0] + words[3];
}

class Races : public ::testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }

  /// Launches `kernel` in several orders of its threads and blocks.
  template <class... Params, class... Args>
  void run(void (*kernel)(Params...), unsigned blocks, unsigned threads, Args... args) {
    for (int launches = 0; launches < 9; ++launches) {
      (void)cudaMemsetAsync(flags_.data(), 0, 4 * sizeof(unsigned), stream_);
      const Grid grid{.blocks = blocks, .threads = threads, .shared_bytes = threads * 4};
      launch(kernel, grid, stream_, args...);
      stream_.wait();
    }
  }

  TestStream stream_;
  DeviceNumbers<int> out_{std::size_t{4} * kThreads};
  DeviceNumbers<int> more_{std::size_t{4} * kThreads};
  DeviceNumbers<unsigned> flags_{4};
};

TEST_F(Races, OfABlockAreOrderedByABarrier) {
  run(exchange<Between::barrier>, 4, kThreads, out_.data(), 127);
  EXPECT_DEATH(
      run(exchange<Between::nothing>, 4, kThreads, out_.data(), 127),
      "emulated CUDA: a race on shared memory .*exchange<.*numbers \\+ [0-9]*: a "
      "(read|write) of 4 bytes by block \\([0-3], 0, 0\\) thread [0-9]* of 128, at "
      ".*\\+0x[0-9a-f]*; before it a (read|write) by block \\([0-3], 0, 0\\) thread [0-9]* "
      "of 128, at .*\\+0x[0-9a-f]*, in a kernel \\(.*exchange<");
  EXPECT_DEATH(run(exchange<Between::warp_barrier>, 4, kThreads, out_.data(), 32), "a race");
  run(overwrite<Between::barrier>, 4, kThreads, out_.data(), 127);
  EXPECT_DEATH(run(overwrite<Between::nothing>, 4, kThreads, out_.data(), 127), "a race");
  EXPECT_DEATH(run(overwrite<Between::warp_barrier>, 4, kThreads, out_.data(), 32), "a race");
}

TEST_F(Races, OfAWarpAreOrderedByItsBarrierOnly) {
  run(exchange<Between::warp_barrier>, 4, kThreads, out_.data(), 31);
  EXPECT_DEATH(run(exchange<Between::nothing>, 4, kThreads, out_.data(), 1), "a race");
  EXPECT_DEATH(run(exchange<Between::shuffle>, 4, kThreads, out_.data(), 1), "a race");
  EXPECT_DEATH(run(exchange<Between::vote>, 4, kThreads, out_.data(), 1), "a race");
  run(overwrite<Between::warp_barrier>, 4, kThreads, out_.data(), 31);
  EXPECT_DEATH(run(overwrite<Between::nothing>, 4, kThreads, out_.data(), 1), "a race");
  EXPECT_DEATH(run(overwrite<Between::shuffle>, 4, kThreads, out_.data(), 1), "a race");
}

TEST_F(Races, OfAWarpAreOrderedForTheLanesOfTheMask) {
  run(exchange<Between::half_a_warp_barrier>, 4, kThreads, out_.data(), 15);
  EXPECT_DEATH(run(exchange<Between::half_a_warp_barrier>, 4, kThreads, out_.data(), 16), "a race");
}

TEST_F(Races, OfTheSharedMemoryOfALaunch) {
  run(exchange_in_given<Between::barrier>, 4, kThreads, out_.data());
  EXPECT_DEATH(run(exchange_in_given<Between::nothing>, 4, kThreads, out_.data()),
               "a race on byte [0-9]* of the shared memory of the launch");
}

TEST_F(Races, OfOneWriterWithAnyOfManyReaders) {
  constexpr auto nothing = read_and_write<Between::nothing>;
  constexpr auto warp_barrier = read_and_write<Between::warp_barrier>;
  run(nothing, 1, kThreads, out_.data(), 50, 1, 50);
  run(read_and_write<Between::barrier>, 1, kThreads, out_.data(), 0, 128, 50);
  run(warp_barrier, 1, kThreads, out_.data(), 32, 32, 50);
  for (const int writer : {32, 33, 34, 63}) {
    EXPECT_DEATH(run(nothing, 1, kThreads, out_.data(), 32, 3, writer), "a race");
    EXPECT_DEATH(run(warp_barrier, 1, kThreads, out_.data(), 31, 33, writer), "a race");
    EXPECT_DEATH(run(warp_barrier, 1, kThreads, out_.data(), 0, 128, writer), "a race");
  }
}

TEST_F(Races, AreNotOfNeighboursInAWord) {
  run(parts<char>, 4, kThreads, reinterpret_cast<char*>(out_.data()));
  run(parts<short>, 4, kThreads, reinterpret_cast<short*>(out_.data()));
  run(parts<std::int64_t>, 2, kThreads, reinterpret_cast<std::int64_t*>(out_.data()));
}

TEST_F(Races, BetweenBlocks) {
  run(write_own, 4, kThreads, out_.data());
  run(write_at, 1, 1, out_.data(), 3);
  EXPECT_DEATH(
      run(write_at, 2, 1, out_.data(), 3),
      "a race on byte 12 of an allocation of 2048 bytes of device 0: a write of 4 bytes by "
      "block \\([01], 0, 0\\) thread 0 of 1, at .*; before it a write by block \\([01], 0, "
      "0\\) thread 0 of 1");
  EXPECT_DEATH(run(read_of_another_block, 4, kThreads, out_.data()), "a race on byte");
}

TEST_F(Races, AreNotOfTwoGrids) {
  for (int at = 0; at < 4; ++at) {
    launch(write_at, Grid{1, 1}, stream_, out_.data(), 1);
    launch(write_own, Grid{4, 1}, stream_, out_.data());
  }
  stream_.wait();
}

TEST_F(Races, OfCopiesOfBytes) {
  run(copy_bytes, 1, 1, out_.data(), more_.data());
  EXPECT_DEATH(run(copy_bytes, 1, 2, out_.data(), more_.data()),
               "a race on .* of (128|16|4|1) bytes");
  EXPECT_DEATH(run(copy_bytes, 1, 2, out_.data() + 1, out_.data() + 1), "a race");
}

TEST_F(Races, AreNotOfTwoAtomicAccesses) {
  run(count, 4, kThreads, out_.data());
  run(set_volatile, 4, kThreads, out_.data());
  EXPECT_DEATH(run(count_and_read, 1, kThreads, out_.data()), "a race on .*atomic write");
  EXPECT_DEATH(run(count_and_read, 2, 1, out_.data()), "a race on .*atomic write");
}

TEST_F(Races, BetweenBlocksAreOrderedByAtomicsWithFences) {
  const auto add = [&](const auto kernel) {
    run(kernel, 4, kThreads, more_.data(), flags_.data(), out_.data());
  };
  add(add_in_last_block<Fences::both>);
  EXPECT_EQ(out_.read(stream_)[7], 4);
  EXPECT_DEATH(add(add_in_last_block<Fences::none>), "a race on byte");
  EXPECT_DEATH(add(add_in_last_block<Fences::before>), "a race on byte");
  EXPECT_DEATH(add(add_in_last_block<Fences::after>), "a race on byte");
  EXPECT_DEATH(add(add_in_last_block<Fences::both_of_block>), "a race on byte");
}

TEST_F(Races, BetweenWarpsAreOrderedByAtomicsWithFences) {
  run(add_in_last_warp<Fences::both>, 2, kThreads, out_.data());
  run(add_in_last_warp<Fences::both_of_block>, 2, kThreads, out_.data());
  EXPECT_EQ(out_.read(stream_)[7], 4);
  EXPECT_DEATH(run(add_in_last_warp<Fences::before>, 1, kThreads, out_.data()), "a race on shared");
  EXPECT_DEATH(run(add_in_last_warp<Fences::after>, 1, kThreads, out_.data()), "a race on shared");
}

TEST_F(Races, OfAsynchronousCopies) {
  const auto* const from = reinterpret_cast<const Four*>(more_.data());
  run(copy_late<Copy::awaited_by_all>, 1, kThreads, from, out_.data(), 5);
  run(copy_late<Copy::awaited>, 1, kThreads, from, out_.data(), 0);
  EXPECT_DEATH(run(copy_late<Copy::awaited>, 1, kThreads, from, out_.data(), 5),
               "a race on shared");
  EXPECT_DEATH(run(copy_late<Copy::awaited_after_the_barrier>, 1, kThreads, from, out_.data(), 5),
               "a race on shared");
  EXPECT_DEATH(run(copy_late<Copy::awaited_after_the_read>, 1, kThreads, from, out_.data(), 0),
               "a race on shared .*asynchronous copy");
}

TEST_F(Races, OfMatricesThatAWarpLoads) {
  auto* const out = reinterpret_cast<unsigned*>(out_.data());
  run(load_rows<Between::warp_barrier, false>, 1, 32, out);
  run(load_rows<Between::warp_barrier, true>, 1, 32, out);
  EXPECT_DEATH((run(load_rows<Between::nothing, false>, 1, 32, out)), "a race on shared");
  EXPECT_DEATH((run(load_rows<Between::nothing, true>, 1, 32, out)), "a race on shared");
}

}  // namespace
}  // namespace emulated_cuda::test::races_test
