#pragma once

#include <cstdint>

#include "kernels/cast/cast.hpp"
#include "kernels/support/cuda/cuda_lanes.cuh"
#include "kernels/support/cuda/cuda_reduce.cuh"
#include "kernels/support/cuda/cuda_workspace.hpp"
#include "tessera/base/math.hpp"

// Kernels that sum over a row and then go over it again, as normalisations do: each row has a warp
// or a block, whose threads hold the row in registers.
namespace tessera::kernels::cuda {

inline constexpr int kMostRowThreads = 512;  // of a row
inline constexpr int kWarpRows = 4;          // rows of a block where a warp has a row to itself
// Of a row, what a thread holds in registers; backward holds two numbers for each.
inline constexpr int kForwardElems = 32;
inline constexpr int kBackwardElems = 16;

// Threads that share a row: one warp if it can hold the row, else as many as can; of rows too long
// for that, what is beyond is read again.
inline int row_threads(std::int64_t columns, int thread_elems) {
  int threads = kWarp;
  while (threads < kMostRowThreads && std::int64_t{threads} * thread_elems < columns) {
    threads *= 2;
  }
  return threads;
}

inline Grid row_grid(std::int64_t rows, int threads) {
  const int block_rows = threads == kWarp ? kWarpRows : 1;
  return grid_for(ceil_div<std::int64_t>(rows, block_rows) * threads * block_rows,
                  static_cast<unsigned>(threads * block_rows));
}

/// The threads of one row, and which of its elements are whose: thread i has the packs of N at
/// N * (i + k * threads).
template <int N, int ThreadElems>
struct RowThreads {
  static constexpr int kHeld = ThreadElems / N;

  int threads;
  int index;

  __device__ explicit RowThreads(int threads_)
      : threads{threads_}, index{static_cast<int>(threadIdx.x) % threads_} {}

  [[nodiscard]] __device__ std::int64_t first_row() const {
    return static_cast<std::int64_t>(blockIdx.x) * (blockDim.x / threads) + threadIdx.x / threads;
  }
  [[nodiscard]] __device__ std::int64_t row_stride() const {
    return static_cast<std::int64_t>(gridDim.x) * (blockDim.x / threads);
  }
  [[nodiscard]] __device__ std::int64_t column(int k) const {
    return static_cast<std::int64_t>(N) * (index + k * threads);
  }
  /// body(column) for what is not held.
  template <class Body>
  __device__ void for_rest(std::int64_t columns, Body body) const {
    for (std::int64_t c = column(kHeld); c < columns; c += std::int64_t{threads} * N) { body(c); }
  }
  /// The mean of what the row's threads have summed up, in all of them.
  [[nodiscard]] __device__ float mean(float sum, double inverse_columns,
                                      double (&shared)[kMostWarps]) const {
    const double wide = sum;
    const double all = threads == kWarp ? warp_sum(wide) : block_sum(wide, shared);
    return static_cast<float>(all * inverse_columns);
  }
};

/// Parameters of a row as the kernels take them: of the activations' dtype or in fp32. A parameter
/// of the other 16 bits, which nobody trains with, is widened into the workspace, so that there are
/// five pairs of types to compile instead of nine.
inline ConstValues widened(ConstValues parameter, DType activations, std::int64_t columns,
                           WorkspaceCut& workspace, Stream stream) {
  if (parameter.dtype == activations || parameter.dtype == DType::fp32) { return parameter; }
  float* const wide = workspace.take<float>(columns);
  cast({wide, columns, DType::fp32}, {parameter.data, columns, parameter.dtype}, stream);
  return wide;
}

/// body(T, Weight) of such types.
template <class Body>
void with_types_of_rows(DType activations, DType parameters, Body body) {
  with_device_type(activations, [&]<class T>(std::type_identity<T> type) {
    if (parameters == DType::fp32) { return body(type, std::type_identity<float>{}); }
    body(type, type);
  });
}

}  // namespace tessera::kernels::cuda
