#include <algorithm>

#include "kernels/squared_norm/squared_norm.hpp"
#include "kernels/support/cuda/cuda_element.cuh"
#include "tessera/base/math.hpp"

namespace tessera::kernels::cuda {
namespace {

// A thread has four neighbouring lanes of a block: what it reads at once is 16 bytes of fp32, and
// four threads together read whole sectors. A span's 64 blocks are 256 threads, one thread block.
constexpr int kLanes = 4;
constexpr int kThreadsOfBlock = kSquaredNormLanes / kLanes;
constexpr int kThreads = kSquaredNormSpan * kThreadsOfBlock;
constexpr std::int64_t kSpanElems = kSquaredNormSpan * kSquaredNormBlock;
// Accesses under way at once: with four thread blocks resident, a multiprocessor waits for 128 KiB
// of fp32 or 64 of 16 bits; its share of an H200's rate and latency is 25 KiB.
constexpr int kAtOnce = 8;
static_assert(kSquaredNormBlock % (kAtOnce * kSquaredNormLanes) == 0);

struct Lanes {
  double at[kLanes];
};

/// Adds the squares of a whole block's elements, of which the thread's first are at `x`. N is how
/// many the array's alignment allows to be read at once.
template <int N, class T>
__device__ void add_block(Lanes& lanes, const T* x) {
  for (int first = 0; first < kSquaredNormBlock; first += kAtOnce * kSquaredNormLanes) {
    Pack<T, N> packs[kAtOnce][kLanes / N];
#pragma unroll
    for (int a = 0; a < kAtOnce; ++a) {
      for (int p = 0; p < kLanes / N; ++p) {
        packs[a][p] = load_pack<N>(x + first + a * kSquaredNormLanes + p * N);
      }
    }
#pragma unroll
    for (int a = 0; a < kAtOnce; ++a) {
      for (int l = 0; l < kLanes; ++l) {
        const auto value = static_cast<double>(to_float(packs[a][l / N].at[l % N]));
        lanes.at[l] += value * value;
      }
    }
  }
}

/// Of a block that ends early: `left` elements from `x` on, which may be none.
template <class T>
__device__ void add_part(Lanes& lanes, const T* x, std::int64_t left) {
  for (std::int64_t first = 0; first < left; first += kSquaredNormLanes) {
    for (int l = 0; l < kLanes; ++l) {
      if (first + l >= left) { return; }
      const auto value = static_cast<double>(to_float(x[first + l]));
      lanes.at[l] += value * value;
    }
  }
}

/// sums[s] = what span s of `x` adds up to. One thread block a span.
template <int N, class T>
__global__ void __launch_bounds__(kThreads)
    span_kernel(const T* x, std::int64_t elems, double* sums) {
  __shared__ double lane_sums[kThreads][kLanes];
  __shared__ double block_sums[kSquaredNormSpan];
  const int thread = static_cast<int>(threadIdx.x);
  const std::int64_t block = blockIdx.x * kSpanElems + thread / kThreadsOfBlock * kSquaredNormBlock;
  const std::int64_t first = block + thread % kThreadsOfBlock * kLanes;

  Lanes lanes{};
  if (block + kSquaredNormBlock <= elems) {
    add_block<N>(lanes, x + first);
  } else {
    add_part(lanes, x + first, elems - first);
  }
  for (int l = 0; l < kLanes; ++l) { lane_sums[thread][l] = lanes.at[l]; }
  __syncthreads();

  if (thread < kSquaredNormSpan) {
    double sum = 0.0;
    for (int l = 0; l < kSquaredNormLanes; ++l) {
      sum += lane_sums[thread * kThreadsOfBlock + l / kLanes][l % kLanes];
    }
    block_sums[thread] = sum;
  }
  __syncthreads();

  if (thread == 0) {
    double sum = 0.0;
    for (const double block_sum : block_sums) { sum += block_sum; }  // those beyond the end are 0
    sums[blockIdx.x] = sum;
  }
}

/// *sum += sums[0], then sums[1] and so on. One thread block, whose other threads read ahead for
/// the one that adds.
__global__ void add_in_order(const double* sums, std::int64_t count, double* sum) {
  __shared__ double next[kThreads];
  double total = *sum;
  for (std::int64_t first = 0; first < count; first += kThreads) {
    const std::int64_t i = first + threadIdx.x;
    if (i < count) { next[threadIdx.x] = sums[i]; }
    __syncthreads();
    if (threadIdx.x == 0) {
      const std::int64_t here = std::min<std::int64_t>(kThreads, count - first);
      for (std::int64_t k = 0; k < here; ++k) { total += next[k]; }
    }
    __syncthreads();
  }
  if (threadIdx.x == 0) { *sum = total; }
}

template <int N, class T>
void add_spans(const T* x, std::int64_t elems, double* span_sums, double* sum,
               cudaStream_t stream) {
  const std::int64_t spans = ceil_div(elems, kSpanElems);
  launch(span_kernel<N, T>, Grid{static_cast<unsigned>(spans), kThreads}, stream, x, elems,
         span_sums);
  launch(add_in_order, Grid{1, kThreads}, stream, span_sums, spans, sum);
}

}  // namespace

void squared_norm(ConstValues x, std::int64_t elems, double* sum, Stream stream) {
  const cudaStream_t cuda = cuda_stream(stream).open();
  const StreamWorkspace& workspace = stream.state()->workspace();
  const auto most_spans = static_cast<std::int64_t>(workspace.bytes / sizeof(double));
  expects(most_spans > 0, "squared_norm: the stream has no workspace");
  with_device_type(x.dtype, [&]<class T>(std::type_identity<T>) {
    const auto add = is_aligned<kLanes>(x.as<T>()) ? add_spans<kLanes, T> : add_spans<1, T>;
    const std::int64_t most = most_spans * kSpanElems;
    for (std::int64_t at = 0; at < elems; at += most) {
      add(x.as<T>() + at, std::min(most, elems - at), static_cast<double*>(workspace.data), sum,
          cuda);
    }
  });
}

}  // namespace tessera::kernels::cuda
