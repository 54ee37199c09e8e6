#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/squared_norm/squared_norm.hpp"
#include "kernels/support/cuda/cuda_element.cuh"

namespace tessera::kernels::cuda {
namespace {

// A thread computes one lane of a block: sixteen threads read 64 bytes of fp32, or a whole sector
// of 16-bit elements. There are many short chains of additions rather than few long ones: a shard
// of a million elements has 4,096 threads, and each waits for memory sixteen times.
constexpr int kThreads = 256;
constexpr int kGroup = kThreads / kSquaredNormLanes;  // blocks per thread block
// Loads in flight at once. With eight thread blocks resident, a multiprocessor has 128 KiB of fp32
// or 64 KiB of 16-bit elements in flight; its share of an H200's rate times latency is 25 KiB.
constexpr int kAtOnce = 16;
static_assert(kSquaredNormBlock % (kAtOnce * kSquaredNormLanes) == 0);
static_assert(kSquaredNormSpan % kGroup == 0);

/// A lane's sum over a whole block; the lane's first element is at `x`.
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

/// Sums a block that ends early: `left` elements from `x` on, possibly none.
template <class T>
__device__ double sum_part(const T* x, std::int64_t left) {
  double sum = 0.0;
  for (std::int64_t i = 0; i < left; i += kSquaredNormLanes) {
    const auto value = static_cast<double>(to_float(x[i]));
    sum += value * value;
  }
  return sum;
}

constexpr int kMostTerms = 512;

/// The parts of terms that one launch sums, each in whole spans except at a term's end. Passed with
/// the launch: kernel parameters may take up to 32,764 bytes.
struct Parts {
  NormTerm at[kMostTerms];
  std::int64_t ends[kMostTerms];  ///< running count of spans, including this part
  int count = 0;

  [[nodiscard]] __host__ __device__ std::int64_t spans() const {
    return count == 0 ? 0 : ends[count - 1];
  }
  /// The part that contains a span.
  __device__ int part_of(std::int64_t span) const {
    int low = 0;
    for (int high = count - 1; low < high;) {
      const int middle = (low + high) / 2;
      if (span < ends[middle]) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    return low;
  }
};

constexpr int kGroupsOfSpan = static_cast<int>(kSquaredNormSpan) / kGroup;  // thread blocks

/// sums[b] = the sum of block b, with kSquaredNormSpan blocks per span; zero for blocks beyond a
/// term's end.
template <class T>
__global__ void __launch_bounds__(kThreads)
    block_kernel(const Parts __grid_constant__ parts, double* sums) {
  __shared__ double lanes[kGroup][kSquaredNormLanes + 1];
  const std::int64_t span = blockIdx.x / kGroupsOfSpan;
  const int part = parts.part_of(span);
  const std::int64_t first_span = part == 0 ? 0 : parts.ends[part - 1];
  const std::int64_t elems = parts.at[part].elems;
  const T* const x = static_cast<const T*>(parts.at[part].x.data);
  const int lane = static_cast<int>(threadIdx.x) % kSquaredNormLanes;
  const int row = static_cast<int>(threadIdx.x) / kSquaredNormLanes;
  const std::int64_t block = static_cast<std::int64_t>(blockIdx.x) * kGroup + row;
  const std::int64_t first = (block - first_span * kSquaredNormSpan) * kSquaredNormBlock;
  lanes[row][lane] = first + kSquaredNormBlock <= elems
                         ? sum_block(x + first + lane)
                         : sum_part(x + first + lane, elems - first - lane);
  __syncthreads();
  if (threadIdx.x < kGroup) {
    double sum = 0.0;
    for (int l = 0; l < kSquaredNormLanes; ++l) { sum += lanes[threadIdx.x][l]; }
    sums[static_cast<std::int64_t>(blockIdx.x) * kGroup + threadIdx.x] = sum;
  }
}

constexpr int kSpanThreads = 1024;  // spans that are added at once

/// Adds the spans' sums to those of their terms, in order. One thread block: each thread adds the
/// blocks of a span, then the first thread adds their sums.
__global__ void __launch_bounds__(kSpanThreads)
    add_spans(const Parts __grid_constant__ parts, const double* block_sums) {
  __shared__ double spans[kSpanThreads];
  int part = 0;
  for (std::int64_t first = 0; first < parts.spans(); first += kSpanThreads) {
    const std::int64_t here = std::min<std::int64_t>(kSpanThreads, parts.spans() - first);
    if (threadIdx.x < here) {
      const double* const blocks = block_sums + (first + threadIdx.x) * kSquaredNormSpan;
      double sum = 0.0;
#pragma unroll 16
      for (int b = 0; b < kSquaredNormSpan; ++b) { sum += blocks[b]; }
      spans[threadIdx.x] = sum;
    }
    __syncthreads();
    for (std::int64_t s = 0; threadIdx.x == 0 && s < here; ++part) {
      const std::int64_t end = std::min(here, parts.ends[part] - first);
      double total = *parts.at[part].sum;
      for (; s < end; ++s) { total += spans[s]; }
      *parts.at[part].sum = total;
      if (parts.ends[part] > first + here) { break; }  // the part continues
    }
    __syncthreads();
  }
}

/// Cuts terms into parts for launches.
class Parting {
 public:
  Parting(std::span<const NormTerm> terms, std::int64_t most_spans)
      : terms_{terms}, most_spans_{most_spans} {}

  /// Returns the next parts, all of one dtype; none if no terms are left.
  [[nodiscard]] Parts next() {
    Parts parts;
    for (; at_ < terms_.size(); ++at_, done_ = 0) {
      const NormTerm& term = terms_[at_];
      if (term.elems == 0) { continue; }
      const std::int64_t room = most_spans_ - parts.spans();
      const bool alike = parts.count == 0 || parts.at[0].x.dtype == term.x.dtype;
      if (room == 0 || parts.count == kMostTerms || !alike) { break; }
      const std::int64_t elems = std::min(term.elems - done_, room * kSpanElems);
      parts.ends[parts.count] = parts.spans() + squared_norm_spans(elems);
      parts.at[parts.count++] = {term.x.at(done_), elems, term.sum};
      done_ += elems;
      if (done_ < term.elems) { break; }
    }
    return parts;
  }

 private:
  static constexpr std::int64_t kSpanElems = kSquaredNormSpan * kSquaredNormBlock;

  std::span<const NormTerm> terms_;
  std::int64_t most_spans_;
  std::size_t at_ = 0;
  std::int64_t done_ = 0;  // elements of the current term
};

}  // namespace

void squared_norm(std::span<const NormTerm> terms, Stream stream) {
  const cudaStream_t cuda = cuda_stream(stream).open();
  const device::StreamWorkspace& workspace = stream.state()->workspace();
  constexpr std::size_t span_bytes = kSquaredNormSpan * sizeof(double);
  const auto most = static_cast<std::int64_t>(workspace.bytes / span_bytes);
  expects(most > 0, "squared_norm: the stream's workspace has no room for the sums of a span");
  auto* const sums = static_cast<double*>(workspace.data);
  Parting parting{terms, most};
  for (Parts parts = parting.next(); parts.count > 0; parts = parting.next()) {
    const auto groups = static_cast<unsigned>(parts.spans() * kGroupsOfSpan);
    with_device_type(parts.at[0].x.dtype, [&]<class T>(std::type_identity<T>) {
      launch(block_kernel<T>, Grid{groups, kThreads}, cuda, parts, sums);
    });
    launch(add_spans, Grid{1, kSpanThreads}, cuda, parts, sums);
  }
}

}  // namespace tessera::kernels::cuda
