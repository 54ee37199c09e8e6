#include <algorithm>
#include <bit>

#include "device/cuda/cuda_dynamic_shared.cuh"
#include "kernels/cross_entropy/cross_entropy.hpp"
#include "kernels/support/cuda/cuda_lanes.cuh"
#include "kernels/support/cuda/cuda_mma.cuh"
#include "kernels/support/cuda/cuda_reduce.cuh"
#include "kernels/support/cuda/cuda_tile.cuh"
#include "kernels/support/cuda/cuda_workspace.hpp"

// A block has a row. It reads the row for the largest logit and the sum of exponentials at once,
// keeping it in shared memory, and writes the gradient from there: in 16 bits 2 bytes from memory
// for each logit and 2 to memory. Two rows of 50,304 logits fit a multiprocessor of an H100: one is
// read while the other is written. A row that is too long for the device's shared memory is read
// again instead. The order of the sums is the same, and the bits.
//
// Registers would hold one row a multiprocessor (1,024 threads of 25 words), whose reading and
// writing then follow each other.

namespace tessera::kernels::cuda {
namespace {

constexpr int kMostThreads = 512;
constexpr int kResident = 2;  // rows that a multiprocessor works on: one is read, one written
constexpr int kPacks = 4;     // 16 bytes each, of a thread, that are on their way at once

// About 16 logits each, in whole warps.
int row_threads(std::int64_t classes) {
  int threads = kWarp;
  while (threads < kMostThreads && std::int64_t{threads} * 16 < classes) { threads *= 2; }
  return threads;
}

/// e^x for x <= 0, but for (4 + 2.3 |x|) 2^-24 of it: two instructions, where expf takes eight. 0
/// where that is below 2^-126.
__device__ inline float fast_exp(float x) {
  constexpr float log2_e = 1.44269504F;
  return fast_exp2(x * log2_e);
}

/// The largest of some logits, and the sum of exp(logit - that), which is NaN if one is NaN or
/// positive infinity.
struct ExpSum {
  float max = -INFINITY;
  float sum = 0.0F;

  /// What exponents are taken relative to: finite where all logits so far are -infinity.
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

// Thread i has the packs of 16 bytes i, i + threads, ...: read as such where the row starts at a
// multiple of 16 bytes, one by one where not, so that the order of the sum does not depend on that.
// `keep` is where the row is kept, as far from a multiple of 16 bytes as in memory; null: nowhere.
template <class T>
__device__ ExpSum exp_sum(const T* logits, std::int64_t classes, T* keep) {
  constexpr int N = kPack<T>;
  ExpSum sum;
  const bool aligned = reinterpret_cast<std::uintptr_t>(logits) % 16 == 0;
  const std::int64_t stride = static_cast<std::int64_t>(blockDim.x) * N;
  for (auto c = std::int64_t{threadIdx.x} * N; c < classes; c += kPacks * stride) {
    uint4 words[kPacks];
    if (aligned && c + (kPacks - 1) * stride + N <= classes) {
#pragma unroll
      for (int p = 0; p < kPacks; ++p) {
        words[p] = *reinterpret_cast<const uint4*>(logits + c + p * stride);
      }
#pragma unroll
      for (int p = 0; p < kPacks; ++p) {
        if (keep != nullptr) { *reinterpret_cast<uint4*>(keep + c + p * stride) = words[p]; }
      }
    } else {
#pragma unroll
      for (int p = 0; p < kPacks; ++p) {
        Pack<T, N> pack;
#pragma unroll
        for (int j = 0; j < N; ++j) {
          const std::int64_t at = c + p * stride + j;
          pack.at[j] = at < classes ? logits[at] : from_float<T>(-INFINITY);
          if (at < classes && keep != nullptr) { keep[at] = pack.at[j]; }
        }
        words[p] = std::bit_cast<uint4>(pack);
      }
    }
#pragma unroll
    for (int p = 0; p < kPacks; p += 2) {
      float some[2 * N];
#pragma unroll
      for (int j = 0; j < 2 * N; ++j) {
        some[j] = to_float(std::bit_cast<Pack<T, N>>(words[p + j / N]).at[j % N]);
      }
      sum.add(some);
    }
  }
  return sum;
}

/// What the gradient of a row's logits is made with.
struct RowGradient {
  float max;
  float factor;  ///< scale / sum
  float scale;
  std::int64_t target;

  [[nodiscard]] __device__ float softmax(float logit) const {
    return fast_exp(logit - max) * factor;
  }
};

// Each logit by itself: packs from the row's first multiple of 16 bytes on. `from` is the row, or
// where it was kept.
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
#pragma unroll
    for (int j = 0; j < N; ++j) { some[j] = row.softmax(to_float(pack.at[j])); }
    if (row.target >= c && row.target < c + N) {
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

template <class T>
struct Rows {
  T* logits;
  const std::int32_t* targets;
  double* losses;
  std::int64_t classes;
  std::int64_t stride;
  float gradient_scale;
  const float* dynamic_scale;
  bool keeps;  ///< in shared memory
};

/// What a row takes of it, wherever in 16 bytes it starts.
template <class T>
std::int64_t kept_bytes(std::int64_t classes) {
  return (classes + kPack<T> - 1) * static_cast<std::int64_t>(sizeof(T));
}

template <class T>
__global__ void __launch_bounds__(kMostThreads, kResident) row_kernel(Rows<T> rows) {
  __shared__ float shared_max[kMostWarps];
  __shared__ double shared_sum[kMostWarps];
  T* const logits = rows.logits + blockIdx.x * rows.stride;
  const std::int64_t target = rows.targets[blockIdx.x];
  const float target_logit = to_float(logits[target]);

  const auto misaligned = reinterpret_cast<std::uintptr_t>(logits) % 16 / sizeof(T);
  T* const keep =
      rows.keeps ? static_cast<T*>(tessera::cuda::dynamic_shared()) + misaligned : nullptr;

  const ExpSum own = exp_sum(logits, rows.classes, keep);
  const float max = block_max(own.max, shared_max);
  const double own_sum =
      static_cast<double>(own.sum) * static_cast<double>(fast_exp(own.shift() - max));
  const double sum = block_sum(own.max == -INFINITY ? static_cast<double>(own.sum) : own_sum,
                               shared_sum);  // every thread has read and kept its logits
  const float scale = rows.dynamic_scale == nullptr ? rows.gradient_scale
                                                    : rows.gradient_scale * *rows.dynamic_scale;
  if (threadIdx.x == 0) {
    // Large logits cancel before the logarithm is added.
    rows.losses[blockIdx.x] =
        log(sum) + (static_cast<double>(max) - static_cast<double>(target_logit));
  }
  if (scale == 0.0F) { return; }
  const auto factor = static_cast<float>(static_cast<double>(scale) / sum);
  write_gradient(keep == nullptr ? logits : keep, logits, rows.classes,
                 RowGradient{max, factor, scale, target});
}

__global__ void __launch_bounds__(kMostThreads)
    add_losses_kernel(const double* losses, std::int64_t rows, double scale, double* loss) {
  __shared__ double shared[kMostWarps];
  double sum = 0.0;
  for (std::int64_t r = threadIdx.x; r < rows; r += blockDim.x) { sum += losses[r]; }
  sum = block_sum(sum, shared);
  if (threadIdx.x == 0) { *loss += scale * sum; }
}

template <class T>
void add_rows(const CrossEntropy& args, Stream stream) {
  WorkspaceCut workspace{stream};
  const auto room = static_cast<std::int64_t>(workspace.left_bytes() / sizeof(double));
  const std::int64_t most = std::min(room, args.rows);
  double* const losses = workspace.take<double>(most);
  Grid grid{.threads = static_cast<unsigned>(row_threads(args.classes))};
  constexpr std::int64_t declared = kMostWarps * (sizeof(float) + sizeof(double));
  const std::int64_t kept = kept_bytes<T>(args.classes);
  const bool keeps = kept + declared <= tessera::cuda::most_shared_bytes();
  if (keeps) { grid.shared_bytes = static_cast<unsigned>(kept); }
  for (std::int64_t first = 0; first < args.rows; first += most) {
    const std::int64_t rows = std::min(most, args.rows - first);
    grid.blocks = static_cast<unsigned>(rows);
    launch(row_kernel<T>, grid, cuda_stream(stream).open(),
           Rows<T>{args.logits.as<T>() + first * args.row_elems(), args.targets + first, losses,
                   args.classes, args.row_elems(), args.gradient_scale, args.dynamic_scale, keeps});
    launch(add_losses_kernel, {1, kMostThreads}, cuda_stream(stream).open(), losses, rows,
           args.loss_scale, args.loss);
  }
}

}  // namespace

void cross_entropy(const CrossEntropy& args, Stream stream) {
  if (args.rows == 0) { return; }
  with_device_type(args.logits.dtype,
                   [&]<class T>(std::type_identity<T>) { add_rows<T>(args, stream); });
}

}  // namespace tessera::kernels::cuda
