#include <algorithm>

#include "kernels/cross_entropy/cross_entropy.hpp"
#include "kernels/support/cuda/cuda_lanes.cuh"
#include "kernels/support/cuda/cuda_reduce.cuh"
#include "kernels/support/cuda/cuda_workspace.hpp"

// A block has a row. It reads the row for the largest logit and the sum of exponentials at once,
// reads it again and writes the gradient: in 16 bits 2 bytes from memory for each logit, 2 from the
// L2 cache, which holds the rows that are worked on (396 of 100 KB in flight), and 2 to memory.

namespace tessera::kernels::cuda {
namespace {

constexpr int kMostThreads = 512;
constexpr int kResident = 3;   // rows that a multiprocessor works on: one waits, others go on
constexpr int kTogether = 16;  // logits of a thread that are on their way at once

// About 16 logits each, in whole warps.
int row_threads(std::int64_t classes) {
  int threads = kWarp;
  while (threads < kMostThreads && std::int64_t{threads} * 16 < classes) { threads *= 2; }
  return threads;
}

/// The largest of some logits, and the sum of exp(logit - that), which is NaN if one is NaN or
/// positive infinity.
struct ExpSum {
  float max = -INFINITY;
  float sum = 0.0F;

  /// What exponents are taken relative to: finite where all logits so far are -infinity.
  [[nodiscard]] __device__ float shift() const { return max == -INFINITY ? 0.0F : max; }

  __device__ void add(const float (&logits)[kTogether]) {
    const float before = max;
#pragma unroll
    for (int j = 0; j < kTogether; ++j) { max = fmaxf(max, logits[j]); }
    sum *= expf(before - shift());
#pragma unroll
    for (int j = 0; j < kTogether; ++j) { sum += expf(logits[j] - shift()); }
  }
};

// Thread i has the packs of 16 bytes i, i + threads, ...: read as such where the row starts at a
// multiple of 16 bytes, one by one where not, so that the order of the sum does not depend on that.
template <class T>
__device__ ExpSum exp_sum(const T* logits, std::int64_t classes) {
  constexpr int N = kPack<T>;
  constexpr int packs = kTogether / N;
  ExpSum sum;
  const bool aligned = reinterpret_cast<std::uintptr_t>(logits) % 16 == 0;
  const std::int64_t stride = static_cast<std::int64_t>(blockDim.x) * N;
  for (auto c = std::int64_t{threadIdx.x} * N; c < classes; c += packs * stride) {
    float some[kTogether];
    if (aligned && c + (packs - 1) * stride + N <= classes) {
      Pack<T, N> loaded[packs];
#pragma unroll
      for (int p = 0; p < packs; ++p) { loaded[p] = load_pack<N>(logits + c + p * stride); }
#pragma unroll
      for (int j = 0; j < kTogether; ++j) { some[j] = to_float(loaded[j / N].at[j % N]); }
    } else {
#pragma unroll
      for (int j = 0; j < kTogether; ++j) {
        const std::int64_t at = c + j / N * stride + j % N;
        some[j] = at < classes ? to_float(logits[at]) : -INFINITY;
      }
    }
    sum.add(some);
  }
  return sum;
}

/// What the gradient of a row's logits is made with.
struct RowGradient {
  float max;
  float factor;  ///< scale / sum
  float scale;
  std::int64_t target;

  [[nodiscard]] __device__ float operator()(float logit, std::int64_t c) const {
    const float softmax = expf(logit - max) * factor;
    return c == target ? softmax - scale : softmax;
  }
};

// Each logit by itself: packs from the row's first multiple of 16 bytes on.
template <class T>
__device__ void write_gradient(T* logits, std::int64_t classes, const RowGradient& gradient) {
  constexpr int N = kPack<T>;
  const auto misaligned = reinterpret_cast<std::uintptr_t>(logits) % 16 / sizeof(T);
  const std::int64_t to_first = static_cast<std::int64_t>((N - misaligned) % N);
  const std::int64_t first = to_first < classes ? to_first : classes;
  const std::int64_t last = first + (classes - first) / N * N;
  for (std::int64_t c = first + std::int64_t{threadIdx.x} * N; c < last;
       c += std::int64_t{blockDim.x} * N) {
    Pack<T, N> pack = load_pack<N>(logits + c);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      pack.at[j] = from_float<T>(gradient(to_float(pack.at[j]), c + j));
    }
    store_pack(logits + c, pack);
  }
  const std::int64_t singles = classes - (last - first);
  for (std::int64_t i = threadIdx.x; i < singles; i += blockDim.x) {
    const std::int64_t c = i < first ? i : i + (last - first);
    logits[c] = from_float<T>(gradient(to_float(logits[c]), c));
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
};

template <class T>
__global__ void __launch_bounds__(kMostThreads, kResident) row_kernel(Rows<T> rows) {
  __shared__ float shared_max[kMostWarps];
  __shared__ double shared_sum[kMostWarps];
  T* const logits = rows.logits + blockIdx.x * rows.stride;
  const std::int64_t target = rows.targets[blockIdx.x];
  const float target_logit = to_float(logits[target]);

  const ExpSum own = exp_sum(logits, rows.classes);
  const float max = block_max(own.max, shared_max);
  const double own_sum =
      static_cast<double>(own.sum) * static_cast<double>(expf(own.shift() - max));
  const double sum = block_sum(own.max == -INFINITY ? static_cast<double>(own.sum) : own_sum,
                               shared_sum);  // every thread has read its logits
  const float scale = rows.dynamic_scale == nullptr ? rows.gradient_scale
                                                    : rows.gradient_scale * *rows.dynamic_scale;
  if (threadIdx.x == 0) {
    // Large logits cancel before the logarithm is added.
    rows.losses[blockIdx.x] =
        log(sum) + (static_cast<double>(max) - static_cast<double>(target_logit));
  }
  if (scale == 0.0F) { return; }
  const auto factor = static_cast<float>(static_cast<double>(scale) / sum);
  write_gradient(logits, rows.classes, RowGradient{max, factor, scale, target});
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
  const auto threads = static_cast<unsigned>(row_threads(args.classes));
  for (std::int64_t first = 0; first < args.rows; first += most) {
    const std::int64_t rows = std::min(most, args.rows - first);
    launch(row_kernel<T>, {static_cast<unsigned>(rows), threads}, cuda_stream(stream).open(),
           Rows<T>{args.logits.as<T>() + first * args.row_elems(), args.targets + first, losses,
                   args.classes, args.row_elems(), args.gradient_scale, args.dynamic_scale});
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
