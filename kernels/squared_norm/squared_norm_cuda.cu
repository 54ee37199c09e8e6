#include <algorithm>

#include "kernels/squared_norm/squared_norm.hpp"
#include "kernels/support/cuda/cuda_element.cuh"
#include "tessera/base/math.hpp"

namespace tessera::kernels::cuda {
namespace {

// A thread has one lane of a block: sixteen of them read 64 bytes of fp32, or a whole sector of 16
// bits. Many short chains of additions rather than few long ones: a shard of a million elements is
// 4,096 threads, and each waits for memory sixteen times.
constexpr int kThreads = 256;
constexpr int kGroup = kThreads / kSquaredNormLanes;  // blocks of a thread block
// Loads under way at once: with eight thread blocks resident, a multiprocessor waits for 128 KiB of
// fp32 or 64 of 16 bits; its share of an H200's rate and latency is 25 KiB.
constexpr int kAtOnce = 16;
static_assert(kSquaredNormBlock % (kAtOnce * kSquaredNormLanes) == 0);

/// A lane's sum over a whole block, of which its first element is at `x`.
template <class T>
__device__ double sum_block(const T* x) {
  double sum = 0.0;
  for (int first = 0; first < kSquaredNormBlock; first += kAtOnce * kSquaredNormLanes) {
    T some[kAtOnce];
#pragma unroll
    for (int a = 0; a < kAtOnce; ++a) { some[a] = x[first + a * kSquaredNormLanes]; }
#pragma unroll
    for (int a = 0; a < kAtOnce; ++a) {
      const auto value = static_cast<double>(to_float(some[a]));
      sum += value * value;
    }
  }
  return sum;
}

/// Of a block that ends early: `left` elements from `x` on, which may be none.
template <class T>
__device__ double sum_part(const T* x, std::int64_t left) {
  double sum = 0.0;
  for (std::int64_t i = 0; i < left; i += kSquaredNormLanes) {
    const auto value = static_cast<double>(to_float(x[i]));
    sum += value * value;
  }
  return sum;
}

/// sums[b] = what block b of `x` adds up to.
template <class T>
__global__ void __launch_bounds__(kThreads)
    block_kernel(const T* x, std::int64_t elems, double* sums) {
  __shared__ double lanes[kGroup][kSquaredNormLanes + 1];
  const int lane = static_cast<int>(threadIdx.x) % kSquaredNormLanes;
  const int row = static_cast<int>(threadIdx.x) / kSquaredNormLanes;
  const std::int64_t block = static_cast<std::int64_t>(blockIdx.x) * kGroup + row;
  const std::int64_t first = block * kSquaredNormBlock;
  lanes[row][lane] = first + kSquaredNormBlock <= elems
                         ? sum_block(x + first + lane)
                         : sum_part(x + first + lane, elems - first - lane);
  __syncthreads();
  const std::int64_t mine = static_cast<std::int64_t>(blockIdx.x) * kGroup + threadIdx.x;
  if (threadIdx.x < kGroup && mine * kSquaredNormBlock < elems) {
    double sum = 0.0;
    for (int l = 0; l < kSquaredNormLanes; ++l) { sum += lanes[threadIdx.x][l]; }
    sums[mine] = sum;
  }
}

constexpr unsigned kSpanThreads = 32;  // few, so that the spans are shared out

/// sums[s] = what the blocks of span s add up to. One thread a span.
__global__ void __launch_bounds__(kSpanThreads)
    span_kernel(const double* block_sums, std::int64_t blocks, double* sums) {
  const std::int64_t first = first_index() * kSquaredNormSpan;
  if (first >= blocks) { return; }
  const std::int64_t rest = blocks - first;
  const auto count = static_cast<int>(rest < kSquaredNormSpan ? rest : kSquaredNormSpan);
  double sum = 0.0;
#pragma unroll 16
  for (int b = 0; b < count; ++b) { sum += block_sums[first + b]; }
  sums[first_index()] = sum;
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

/// Elements whose blocks' and spans' sums fit the workspace, in whole spans.
std::int64_t most_at_once(const StreamWorkspace& workspace) {
  const auto room = static_cast<std::int64_t>(workspace.bytes / sizeof(double));
  return room / (kSquaredNormSpan + 1) * kSquaredNormSpan * kSquaredNormBlock;
}

template <class T>
void add_blocks(const T* x, std::int64_t elems, double* block_sums, double* sum,
                cudaStream_t stream) {
  const std::int64_t blocks = ceil_div(elems, kSquaredNormBlock);
  const std::int64_t spans = ceil_div(blocks, kSquaredNormSpan);
  double* const span_sums = block_sums + spans * kSquaredNormSpan;
  launch(block_kernel<T>,
         Grid{static_cast<unsigned>(ceil_div<std::int64_t>(blocks, kGroup)), kThreads}, stream, x,
         elems, block_sums);
  launch(span_kernel,
         Grid{static_cast<unsigned>(ceil_div<std::int64_t>(spans, kSpanThreads)), kSpanThreads},
         stream, block_sums, blocks, span_sums);
  launch(add_in_order, Grid{1, kThreads}, stream, span_sums, spans, sum);
}

}  // namespace

void squared_norm(ConstValues x, std::int64_t elems, double* sum, Stream stream) {
  const cudaStream_t cuda = cuda_stream(stream).open();
  const StreamWorkspace& workspace = stream.state()->workspace();
  const std::int64_t most = most_at_once(workspace);
  expects(most > 0, "squared_norm: the stream's workspace has no room for the sums of a span");
  with_device_type(x.dtype, [&]<class T>(std::type_identity<T>) {
    for (std::int64_t at = 0; at < elems; at += most) {
      add_blocks(x.as<T>() + at, std::min(most, elems - at), static_cast<double*>(workspace.data),
                 sum, cuda);
    }
  });
}

}  // namespace tessera::kernels::cuda
