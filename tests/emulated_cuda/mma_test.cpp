// Checks a warp's products and late copies against plain loops.
#include <cuda_bf16.h>

#include "emulated_cuda/test_support.hpp"
#include "kernels/support/cuda/cuda_mma.cuh"
#include "tessera/base/half.hpp"

namespace emulated_cuda::test::mma_test {
namespace {

using namespace tessera::kernels::cuda;
using tessera::bfloat16;

constexpr int kSide = 16;
constexpr int kElems = kSide * kSide;

struct alignas(16) Matrix {
  bfloat16 at[kSide][kSide];
};

/// Small integers, whose products and sums are exact.
int element(int which, int row, int column) {
  return (7 * row + 3 * column + 5 * which) % 11 - 5;
}

enum class Right { by_rows, by_columns };

/// c = a b, two products of 8 columns side by side.
template <Right right>
__global__ void multiply(float* c) {
  __shared__ Matrix a;
  __shared__ Matrix b;
  const int lane = static_cast<int>(threadIdx.x);
  for (int i = lane; i < kElems; i += 32) {
    const int row = i / kSide;
    const int column = i % kSide;
    a.at[row][column] = bfloat16::from_float(static_cast<float>(element(0, row, column)));
    const int of_b = right == Right::by_rows ? element(1, row, column) : element(1, column, row);
    b.at[row][column] = bfloat16::from_float(static_cast<float>(of_b));
  }
  __syncthreads();
  std::uint32_t left[4];
  std::uint32_t halves[4];
  load_matrices(left, shared_address(&a.at[lane % 16][lane / 16 * 8]));
  if (right == Right::by_rows) {
    load_matrices_transposed(halves, shared_address(&b.at[lane % 16][lane / 16 * 8]));
  } else {
    load_matrices(halves, shared_address(&b.at[lane / 16 * 8 + lane % 8][lane / 8 % 2 * 8]));
  }
  for (int half = 0; half < 2; ++half) {
    float sum[4] = {1.0F, 1.0F, 1.0F, 1.0F};
    mma<__nv_bfloat16>(sum, left, halves[2 * half], halves[2 * half + 1]);
    for (int i = 0; i < 4; ++i) {
      const int row = lane / 4 + 8 * (i / 2);
      c[row * kSide + 8 * half + 2 * (lane % 4) + i % 2] = sum[i];
    }
  }
}

enum class Wait { yes, no };

struct alignas(16) Four {
  int at[4];
};

/// Two groups of copies: waits for the first; the second copies 8 of 16 bytes.
template <Wait wait>
__global__ void copy(const int* from, int* to) {
  __shared__ Four first;
  __shared__ Four second;
  if (threadIdx.x == 0) {
    copy_async(shared_address(first.at), from, 16);
    close_copies();
    copy_async(shared_address(second.at), from + 4, 8);
    close_copies();
    wait_for_copies<1>();
    to[0] = first.at[3];
    to[1] = second.at[1];
    if (wait == Wait::yes) { wait_for_copies<0>(); }
    to[2] = second.at[1];
    to[3] = second.at[2];
  }
}

__global__ void numbers(int* to) {
  to[threadIdx.x] = static_cast<int>(threadIdx.x) + 10;
}

TEST(EmulatedMma, IsTheProductOfWhatTheLanesHold) {
  TestStream stream;
  DeviceNumbers<float> c{kElems};
  for (const auto kernel : {multiply<Right::by_rows>, multiply<Right::by_columns>}) {
    launch(kernel, Grid{1, 32}, stream, c.data());
    const std::vector<float> got = c.read(stream);
    for (int row = 0; row < kSide; ++row) {
      for (int column = 0; column < kSide; ++column) {
        int sum = 1;
        for (int k = 0; k < kSide; ++k) { sum += element(0, row, k) * element(1, k, column); }
        ASSERT_EQ(got[static_cast<std::size_t>(row * kSide + column)], static_cast<float>(sum))
            << row << " " << column;
      }
    }
  }
}

TEST(EmulatedMma, CopiesArriveWhenAwaited) {
  TestStream stream;
  DeviceNumbers<int> from{8}, to{4};
  launch(numbers, Grid{1, 8}, stream, from.data());
  launch(copy<Wait::yes>, Grid{1, 32}, stream, from.data(), to.data());
  EXPECT_EQ(to.read(stream), (std::vector<int>{13, -1, 15, 0}));
  launch(copy<Wait::no>, Grid{1, 32}, stream, from.data(), to.data());
  EXPECT_EQ(to.read(stream), (std::vector<int>{13, -1, -1, -1}));
}

}  // namespace
}  // namespace emulated_cuda::test::mma_test
