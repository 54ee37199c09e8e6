#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "kernels/support/cuda/cuda_lanes.cuh"
#include "kernels/support/cuda/cuda_mma.cuh"
#include "kernels/support/cuda/cuda_reduce.cuh"
#include "kernels/support/cuda/cuda_tile.cuh"

// Operations of the blocks of the cross-entropy kernels on a row of logits.
namespace tessera::kernels::cuda {

inline constexpr int kMostThreads = 512;
inline constexpr int kPacks = 4;  // of 16 bytes, in registers per thread

// About 16 logits per thread, in whole warps.
inline int row_threads(std::int64_t classes) {
  int threads = kWarp;
  while (threads < kMostThreads && std::int64_t{threads} * 16 < classes) { threads *= 2; }
  return threads;
}

/// e^x for x <= 0, with a relative error below (4 + 2.3 |x|) 2^-24: two instructions, where expf
/// takes eight. 0 if the result is below 2^-126.
__device__ inline float fast_exp(float x) {
  constexpr float log2_e = 1.44269504F;
  return fast_exp2(x * log2_e);
}

/// The largest of some logits, and the sum of exp(logit - largest), which is NaN if a logit is NaN
/// or positive infinity.
struct ExpSum {
  float max = -INFINITY;
  float sum = 0.0F;

  /// The value that exponents are relative to: finite even while all logits so far are -infinity.
  [[nodiscard]] __device__ float shift() const { return max == -INFINITY ? 0.0F : max; }

  template <int Count>
  __device__ void add(const float (&logits)[Count]) {
    const float before = max;
#pragma unroll
    for (int j = 0; j < Count; ++j) { max = fmaxf(max, logits[j]); }
    const float by = shift();
    sum *= fast_exp(before - by);
#pragma unroll
    for (int j = 0; j < Count; ++j) { sum += fast_exp(logits[j] - by); }
  }
};

/// Whether a block keeps its row in shared memory or reads it again.
enum class Row : std::uint8_t { kept, read_again };

/// N logits from `at` on, read one by one; minus infinity from `classes` on. A row that is kept is
/// copied to `keep`.
template <Row row, class T>
__device__ uint4 load_singly(const T* logits, std::int64_t at, std::int64_t classes, T* keep) {
  constexpr int N = kPack<T>;
  Pack<T, N> pack;
#pragma unroll
  for (int j = 0; j < N; ++j) { pack.at[j] = from_float<T>(-INFINITY); }
  if (at < classes) {
#pragma unroll
    for (int j = 0; j < N; ++j) {
      if (at + j < classes) {
        pack.at[j] = logits[at + j];
        if constexpr (row == Row::kept) { keep[at + j] = pack.at[j]; }
      }
    }
  }
  return std::bit_cast<uint4>(pack);
}

/// Copies the calling thread's whole packs of a row to shared memory, all of them at once: a row
/// waits for memory once, not once for every few packs that fit into registers. Both start at a
/// multiple of 16 bytes.
template <class T>
__device__ void keep_packs(const T* logits, std::int64_t classes, T* keep) {
  constexpr int N = kPack<T>;
  const auto first = static_cast<int>(threadIdx.x) * N;
  const auto stride = static_cast<int>(blockDim.x) * N;
  const T* from = logits + first;
  SharedAddress to = shared_address(keep + first);
#pragma unroll 4
  for (std::int64_t left = classes - first; left >= N; left -= stride) {
    copy_async(to, from, 16);
    from += stride;
    to += static_cast<SharedAddress>(stride * static_cast<int>(sizeof(T)));
  }
  close_copies();
  wait_for_copies<0>();
}

// Thread i takes the packs of 16 bytes i, i + threads, ... If the row starts at a multiple of 16
// bytes, they are read as packs, else element by element, so that the order of the sum does not
// depend on alignment. A row that is kept is copied to `keep`, in shared memory and at the same
// alignment within 16 bytes as in memory.
template <Row row, class T>
__device__ ExpSum exp_sum(const T* logits, std::int64_t classes, T* keep) {
  constexpr int N = kPack<T>;
  ExpSum sum;
  const bool aligned = reinterpret_cast<std::uintptr_t>(logits) % 16 == 0;
  const std::int64_t stride = static_cast<std::int64_t>(blockDim.x) * N;
  const T* packs = logits;
  if constexpr (row == Row::kept) {
    if (aligned) { keep_packs(logits, classes, keep); }
    packs = keep;
  }
  for (auto c = std::int64_t{threadIdx.x} * N; c < classes; c += kPacks * stride) {
    uint4 words[kPacks];
    if (aligned && c + (kPacks - 1) * stride + N <= classes) {
#pragma unroll
      for (int p = 0; p < kPacks; ++p) {
        words[p] = *reinterpret_cast<const uint4*>(packs + c + p * stride);
      }
    } else {
#pragma unroll
      for (int p = 0; p < kPacks; ++p) {
        const std::int64_t at = c + p * stride;
        words[p] = aligned && at + N <= classes ? *reinterpret_cast<const uint4*>(packs + at)
                                                : load_singly<row>(logits, at, classes, keep);
      }
    }
#pragma unroll
    for (int p = 0; p < kPacks; p += 2) {
      float some[2 * N];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float own[N];
        to_floats(std::bit_cast<Pack<T, N>>(words[p + half]), own);
#pragma unroll
        for (int j = 0; j < N; ++j) { some[half * N + j] = own[j]; }
      }
      sum.add(some);
    }
  }
  return sum;
}

/// What the gradient of a row's logits is computed from.
struct RowGradient {
  float max;
  float factor;  ///< scale / sum
  float scale;
  std::int64_t target;

  [[nodiscard]] __device__ float softmax(float logit) const {
    return fast_exp(logit - max) * factor;
  }
};

// Computes each logit independently, in packs from the row's first multiple of 16 bytes on. `from`
// is the row, or its copy.
template <class T>
__device__ void write_gradient(const T* from, T* logits, std::int64_t classes,
                               const RowGradient& row) {
  constexpr int N = kPack<T>;
  const auto misaligned = reinterpret_cast<std::uintptr_t>(logits) % 16 / sizeof(T);
  const std::int64_t to_first = static_cast<std::int64_t>((N - misaligned) % N);
  const std::int64_t first = to_first < classes ? to_first : classes;
  const std::int64_t last = first + (classes - first) / N * N;
  for (std::int64_t c = first + std::int64_t{threadIdx.x} * N; c < last;
       c += std::int64_t{blockDim.x} * N) {
    auto pack = std::bit_cast<Pack<T, N>>(*reinterpret_cast<const uint4*>(from + c));
    float some[N];
    to_floats(pack, some);
#pragma unroll
    for (int j = 0; j < N; ++j) { some[j] = row.softmax(some[j]); }
    if (static_cast<std::uint64_t>(row.target - c) < std::uint64_t{N}) {
#pragma unroll
      for (int j = 0; j < N; ++j) {
        if (c + j == row.target) { some[j] -= row.scale; }
      }
    }
#pragma unroll
    for (int j = 0; j < N; ++j) { pack.at[j] = from_float<T>(some[j]); }
    store_four_words(reinterpret_cast<uint4*>(logits + c), std::bit_cast<uint4>(pack));
  }
  const std::int64_t singles = classes - (last - first);
  for (std::int64_t i = threadIdx.x; i < singles; i += blockDim.x) {
    const std::int64_t c = i < first ? i : i + (last - first);
    const float softmax = row.softmax(to_float(from[c]));
    logits[c] = from_float<T>(c == row.target ? softmax - row.scale : softmax);
  }
}

/// The largest logit of a row and the sum of exp(logit - largest), in every thread of its block.
struct BlockSum {
  float max;
  double sum;
};
__device__ inline BlockSum block_exp_sum(const ExpSum& own) {
  __shared__ float shared_max[kMostWarps];
  __shared__ double shared_sum[kMostWarps];
  const float max = block_max(own.max, shared_max);
  const double own_sum =
      static_cast<double>(own.sum) * static_cast<double>(fast_exp(own.shift() - max));
  return {max,
          block_sum(own.max == -INFINITY ? static_cast<double>(own.sum) : own_sum, shared_sum)};
}
/// The shared memory that block_exp_sum declares.
inline constexpr std::int64_t kBlockSumBytes = kMostWarps * (sizeof(float) + sizeof(double));

/// A block's row of logits that does not count becomes 0.
template <class T>
__device__ void clear_row(T* logits, std::int64_t classes) {
  for (std::int64_t c = threadIdx.x; c < classes; c += blockDim.x) {
    logits[c] = from_float<T>(0.0F);
  }
}

/// *loss += scale * the sum of `losses` of the rows that count, and *counted += their number, in
/// one block.
static __global__ void __launch_bounds__(kMostThreads)
    add_losses_kernel(const double* losses, const std::int32_t* targets, std::int64_t rows,
                      double scale, double* loss, double* counted) {
  __shared__ double shared[kMostWarps];
  double sum = 0.0;
  double count = 0.0;
  for (std::int64_t r = threadIdx.x; r < rows; r += blockDim.x) {
    if (targets[r] < 0) { continue; }
    sum += losses[r];
    count += 1.0;
  }
  sum = block_sum(sum, shared);
  if (threadIdx.x == 0) { *loss += scale * sum; }
  if (counted == nullptr) { return; }
  count = block_sum(count, shared);
  if (threadIdx.x == 0) { *counted += count; }
}

}  // namespace tessera::kernels::cuda
