#pragma once

#include <bit>
#include <cstdint>

#include "kernels/cast/cast.hpp"
#include "kernels/support/cuda/cuda_lanes.cuh"
#include "kernels/support/cuda/cuda_reduce.cuh"
#include "kernels/support/cuda/cuda_workspace.hpp"
#include "tessera/base/math.hpp"

// For kernels that sum over a row and then process it again, such as normalisations: each row has a
// warp or a block, whose threads hold the row in registers.
namespace tessera::kernels::cuda {

inline constexpr int kMostRowThreads = 512;  // per row
// Blocks of kMostRowThreads that a multiprocessor should hold: 32 warps, 64 registers per thread.
// Access to single elements takes more registers.
template <Access access>
inline constexpr int kRowBlocks = access == Access::packs ? 2 : 1;
inline constexpr int kWarpRows = 4;  // rows per block if each row has one warp
// Elements of a row that a thread holds in registers: four packs.
template <class T>
inline constexpr int kForwardElems = 4 * kPack<T>;

// Threads per row: one warp if it can hold the row, else as many as can. If the row is too long for
// a block, the excess is read again.
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

/// A thread's elements of a row in their dtype; 0 beyond the row's end. Thread i of a row's `group`
/// holds the packs i, i + group, i + 2 * group ...
template <class T, int Elems>
struct Held {
  static constexpr int N = kPack<T>;
  static constexpr int kPacks = Elems / N;
  uint4 words[kPacks];

  __device__ void load(const T* row, Access access, int columns, int index, int group) {
    if (access == Access::packs) {
#pragma unroll
      for (int k = 0; k < kPacks; ++k) {
        const int c = N * (index + k * group);
        words[k] = c < columns ? *reinterpret_cast<const uint4*>(row + c) : uint4{};
      }
    } else {
#pragma unroll
      for (int k = 0; k < kPacks; ++k) {
        const int c = N * (index + k * group);
        Pack<T, N> pack{};
#pragma unroll
        for (int j = 0; j < N; ++j) {
          if (c + j < columns) { pack.at[j] = row[c + j]; }
        }
        words[k] = std::bit_cast<uint4>(pack);
      }
    }
  }
  /// Makes the compiler convert the words again and reread shared memory, instead of keeping both
  /// in registers.
  __device__ void forget_floats() {
#pragma unroll
    for (uint4& w : words) {
      asm volatile("" : "+r"(w.x), "+r"(w.y), "+r"(w.z), "+r"(w.w) : : "memory");
    }
  }
  __device__ void floats(int k, float (&to)[N]) const {
    to_floats(std::bit_cast<Pack<T, N>>(words[k]), to);
  }
};

/// The threads of one row of `columns` elements of T, and the elements that they hold. The rest of
/// the row is read again each time. The access is known when the kernel is compiled: branches at
/// every load and store would take as many instructions as some of the arithmetic.
template <class T, Access access>
struct RowThreads {
  static constexpr int N = kPack<T>;

  int threads;
  int index;
  std::int64_t columns;
  int near_columns;  ///< the number of columns, or, if there are more, what the threads can hold
  const T* row = nullptr;
  Held<T, kForwardElems<T>> held;

  __device__ RowThreads(int threads_, std::int64_t columns_)
      : threads{threads_},
        index{static_cast<int>(threadIdx.x) % threads_},
        columns{columns_},
        near_columns{columns_ < room() ? static_cast<int>(columns_) : room()} {}

  [[nodiscard]] __device__ std::int64_t first_row() const {
    return static_cast<std::int64_t>(blockIdx.x) * (blockDim.x / threads) + threadIdx.x / threads;
  }
  [[nodiscard]] __device__ std::int64_t row_stride() const {
    return static_cast<std::int64_t>(gridDim.x) * (blockDim.x / threads);
  }
  __device__ void load(const T* from) {
    row = from;
    held.load(from, access, near_columns, index, threads);
  }
  /// Calls body(values, column) for all packs of this thread; values are 0 beyond the row's end.
  template <class Body>
  __device__ void for_packs(Body body) const {
    float values[N];
#pragma unroll
    for (int k = 0; k < held.kPacks; ++k) {
      const int column = N * (index + k * threads);
      if (column < near_columns) {
        held.floats(k, values);
        body(values, column);
      }
    }
    if (near_columns < room()) { return; }
    for (std::int64_t c = room() + N * index; c < columns; c += std::int64_t{threads} * N) {
      load_floats(row + c, access, columns - c, values);
      body(values, c);
    }
  }
  /// Whether the element `j` of the pack at `column` is within the row.
  [[nodiscard]] __device__ bool is_inside(std::int64_t column, int j) const {
    return access == Access::packs || column + j < columns;
  }
  /// The mean, in all of the row's threads, from each thread's sum.
  [[nodiscard]] __device__ float mean(float sum, double inverse_columns,
                                      double (&shared)[kMostWarps]) {
    held.forget_floats();
    const double wide = sum;
    const double all = threads == kWarp ? warp_sum(wide) : block_sum(wide, shared);
    return static_cast<float>(all * inverse_columns);
  }

 private:
  [[nodiscard]] __device__ int room() const { return threads * kForwardElems<T>; }
};

/// A parameter of any dtype in fp32: in place, or converted into the workspace.
inline ConstValues in_fp32(ConstValues parameter, std::int64_t columns, WorkspaceCut& workspace,
                           Stream stream) {
  if (parameter.dtype == DType::fp32) { return parameter; }
  float* const wide = workspace.take<float>(columns);
  cast({wide, columns, DType::fp32}, {parameter.data, columns, parameter.dtype}, stream);
  return wide;
}

/// Parameters of a row as the kernels take them: in the activations' dtype or in fp32. A parameter
/// of the other 16-bit dtype, which no training uses, is widened into the workspace. This leaves
/// five pairs of types to compile instead of nine.
inline ConstValues widened(ConstValues parameter, DType activations, std::int64_t columns,
                           WorkspaceCut& workspace, Stream stream) {
  return parameter.dtype == activations ? parameter
                                        : in_fp32(parameter, columns, workspace, stream);
}

/// Calls body(T, Weight) with these types.
template <class Body>
void with_types_of_rows(DType activations, DType parameters, Body body) {
  with_device_type(activations, [&]<class T>(std::type_identity<T> type) {
    if (parameters == DType::fp32) { return body(type, std::type_identity<float>{}); }
    body(type, type);
  });
}

}  // namespace tessera::kernels::cuda
