#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>

#include "kernels/support/cuda/cuda_lanes.cuh"
#include "kernels/support/cuda/cuda_tile.cuh"
#include "kernels/support/cuda/cuda_workspace.hpp"
#include "tessera/base/math.hpp"

// Sums over the rows of a matrix, column by column. Blocks sum chunks of rows into the stream's
// workspace, and a second kernel adds the chunks' sums. Every sum is in fp32, in an order that
// depends only on the sizes.
namespace tessera::kernels::cuda {

inline constexpr int kSumLanes = 32;  // threads of a block along a row
inline constexpr int kSumRows = 8;    // rows of threads in a block
inline constexpr int kSumThreads = kSumLanes * kSumRows;
inline constexpr int kAddRows = 16;  // rows of threads where chunks are added
inline constexpr int kAddThreads = kSumLanes * kAddRows;
inline constexpr std::int64_t kChunkRows = 64;    // at least: eight rows per thread
inline constexpr std::int64_t kMostChunks = 128;  // some hundred blocks even for 768 columns

/// The columns that a launch sums, and the location of the chunks' sums: [K, chunks, columns].
struct ColumnCut {
  std::int64_t first;  ///< column
  std::int64_t columns;
  std::int64_t rows;
  std::int64_t chunks;
  std::int64_t chunk_rows;
  float* partials;
};

/// Sums over a block's rows of threads, each thread with `Count` sums: calls to(i, sum) for each i
/// that is assigned to this thread.
template <int Rows, int Count, class To>
__device__ inline void sum_thread_rows(const float (&sums)[Count], To to) {
  __shared__ float shared[Rows][Count][kSumLanes];
  const int lane = static_cast<int>(threadIdx.x) % kSumLanes;
  const int row = static_cast<int>(threadIdx.x) / kSumLanes;
#pragma unroll
  for (int i = 0; i < Count; ++i) { shared[row][i][lane] = sums[i]; }
  __syncthreads();
  for (int i = row; i < Count; i += Rows) {
    float sum = 0.0F;
#pragma unroll
    for (int r = 0; r < Rows; ++r) { sum += shared[r][i][lane]; }
    to(i, sum);
  }
}

template <class Terms>
__global__ void __launch_bounds__(kSumThreads) column_partials_kernel(Terms terms, ColumnCut cut) {
  constexpr int K = Terms::kSums;
  constexpr int N = Terms::kColumns;
  const int lane = static_cast<int>(threadIdx.x) % kSumLanes;
  const std::int64_t column = (static_cast<std::int64_t>(blockIdx.x) * kSumLanes + lane) * N;
  const std::int64_t first = blockIdx.y * cut.chunk_rows;
  const std::int64_t last = first + cut.chunk_rows < cut.rows ? first + cut.chunk_rows : cut.rows;
  float sums[K * N] = {};
  if (column < cut.columns) {
    // Unrolled, so that several rows are in flight at once.
#pragma unroll 4
    for (std::int64_t r = first + threadIdx.x / kSumLanes; r < last; r += kSumRows) {
      terms.add(r, cut.first + column, sums);
    }
  }
  sum_thread_rows<kSumRows>(sums, [&](int i, float sum) {
    const std::int64_t at = column + i % N;
    if (at < cut.columns) {
      cut.partials[(i / N * cut.chunks + blockIdx.y) * cut.columns + at] = sum;
    }
  });
}

template <int K>
struct ColumnSums {
  Values at[K];              ///< null: not requested
  bool overwritten[K] = {};  ///< whether the old values are ignored
};

template <int K>
__global__ void __launch_bounds__(kAddThreads)
    add_partials_kernel(ColumnSums<K> to, ColumnCut cut) {
  const Values sums = blockIdx.y == 0 ? to.at[0] : to.at[K - 1];
  const bool overwritten = blockIdx.y == 0 ? to.overwritten[0] : to.overwritten[K - 1];
  static_assert(K <= 2);
  const std::int64_t column =
      static_cast<std::int64_t>(blockIdx.x) * kSumLanes + static_cast<int>(threadIdx.x) % kSumLanes;
  const float* partials = cut.partials + blockIdx.y * cut.chunks * cut.columns + column;
  float sum[1] = {};
  if (column < cut.columns && sums.data != nullptr) {
#pragma unroll 8
    for (std::int64_t c = threadIdx.x / kSumLanes; c < cut.chunks; c += kAddRows) {
      sum[0] += partials[c * cut.columns];
    }
  }
  sum_thread_rows<kAddRows>(sum, [&](int, float all) {
    if (column >= cut.columns || sums.data == nullptr) { return; }
    const std::int64_t at = cut.first + column;
    const float before = overwritten ? 0.0F : load_one(sums.data, sums.dtype, at);
    store_one(sums.data, sums.dtype, at, before + all);
  });
}

/// to[k][c] += (or =) the sum of the chunks' sums for column c, rounded once.
template <int K>
void add_partials(const ColumnSums<K>& to, const ColumnCut& cut, Stream stream) {
  launch(add_partials_kernel<K>,
         {static_cast<unsigned>(ceil_div<std::int64_t>(cut.columns, kSumLanes)), kAddThreads,
          static_cast<unsigned>(K)},
         cuda_stream(stream).open(), to, cut);
}

/// to[k][c] += (or =) the sum over r in [0, rows) of what `terms.add(r, c, sums)` adds to
/// sums[k * kColumns + j] for column c + j; c is a multiple of Terms::kColumns, k < Terms::kSums.
/// Each `to` is rounded once. The chunks' sums use the rest of `workspace`.
template <class Terms>
void add_column_sums(const Terms& terms, const ColumnSums<Terms::kSums>& to, std::int64_t rows,
                     std::int64_t columns, WorkspaceCut workspace, Stream stream) {
  constexpr std::int64_t K = Terms::kSums;
  const bool adds = std::ranges::none_of(to.overwritten, std::identity{});
  if (rows == 0 && adds) { return; }
  const std::int64_t least{1};  // also for no rows, whose sum is zero
  const std::int64_t most_chunks = std::clamp(ceil_div(rows, kChunkRows), least, kMostChunks);
  const std::int64_t chunk_rows = std::max(ceil_div(rows, most_chunks), least);
  const std::int64_t chunks = std::max(ceil_div(rows, chunk_rows), least);
  const auto room =
      static_cast<std::int64_t>(workspace.left_bytes() / sizeof(float)) / (K * chunks);
  const std::int64_t tile = kSumLanes * Terms::kColumns;
  const std::int64_t piece = std::max(room / tile, std::int64_t{1}) * tile;
  const std::int64_t most = std::min(piece, columns);
  float* const partials = workspace.take<float>(K * chunks * most);
  for (std::int64_t first = 0; first < columns; first += piece) {
    const std::int64_t count = std::min(piece, columns - first);
    const ColumnCut cut{first, count, rows, chunks, chunk_rows, partials};
    launch(
        column_partials_kernel<Terms>,
        {static_cast<unsigned>(ceil_div(count, tile)), kSumThreads, static_cast<unsigned>(chunks)},
        cuda_stream(stream).open(), terms, cut);
    add_partials(to, cut, stream);
  }
}

}  // namespace tessera::kernels::cuda
