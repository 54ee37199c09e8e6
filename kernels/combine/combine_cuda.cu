#include <algorithm>
#include <array>
#include <limits>
#include <vector>

#include "kernels/combine/combine.hpp"
#include "kernels/support/cuda/cuda_cut.cuh"
#include "kernels/support/cuda/cuda_element.cuh"
#include "kernels/support/cuda/cuda_lanes.cuh"

namespace tessera::kernels::cuda {
namespace {

/// The type in which elements are added.
template <class T>
struct SumOf {
  using Type = float;
};
template <>
struct SumOf<double> {
  using Type = double;
};

template <class T>
__device__ typename SumOf<T>::Type widen(T x) {
  if constexpr (std::is_same_v<T, double>) {
    return x;
  } else {
    return to_float(x);
  }
}
template <class T>
__device__ T round_to(typename SumOf<T>::Type x) {
  if constexpr (std::is_same_v<T, double>) {
    return x;
  } else {
    return from_float<T>(x);
  }
}

// `start` is the neutral element: combined with any x it gives x.
struct Add {
  template <class Sum>
  static __device__ Sum start() {
    return -Sum{0};
  }
  template <class Sum>
  static __device__ Sum apply(Sum a, Sum b) {
    return a + b;
  }
};
struct Max {
  template <class Sum>
  static __device__ Sum start() {
    return -std::numeric_limits<Sum>::infinity();
  }
  // A NaN on either side stays.
  template <class Sum>
  static __device__ Sum apply(Sum a, Sum b) {
    return (b > a || b != b) ? b : a;
  }
};

/// Passed with the launch: kernel parameters may take up to 32,764 bytes.
template <int Capacity>
struct Sources {
  const void* at[Capacity];
  int count;
};

// Sources whose loads are in flight at once. With half of its 2,048 threads resident, a
// multiprocessor of an H200 has 64 KiB of 16-byte packs in flight; its share of 4.8 TB/s at a
// latency of 0.7 us is 25 KiB.
constexpr int kAtOnce = 4;

/// Combines elements [at, at + N). All sources are read before `to`, which may be one of them, is
/// written.
template <int N, class T, class Op, int Capacity>
__device__ void combine_at(T* to, const Sources<Capacity>& from, std::int64_t at) {
  using Sum = typename SumOf<T>::Type;
  Sum sums[N];
  for (Sum& sum : sums) { sum = Op::template start<Sum>(); }
  for (int first = 0; first < from.count; first += kAtOnce) {
    Pack<T, N> packs[kAtOnce] = {};
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      if (first + k < from.count) {
        packs[k] = load_pack<N>(static_cast<const T*>(from.at[first + k]) + at);
      }
    }
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      if (first + k >= from.count) { break; }
      for (int i = 0; i < N; ++i) { sums[i] = Op::apply(sums[i], widen(packs[k].at[i])); }
    }
  }
  Pack<T, N> result;
  for (int i = 0; i < N; ++i) { result.at[i] = round_to<T>(sums[i]); }
  store_pack(to + at, result);
}

template <class T, class Op, int Capacity>
__global__ void combine_kernel(T* to, const Sources<Capacity> __grid_constant__ from,
                               Cut<kPack<T>> cut) {
  for (std::int64_t i = first_index(); i < cut.tiles; i += index_stride()) {
    combine_at<kPack<T>, T, Op>(to, from, cut.tile(i));
  }
  for (std::int64_t i = first_index(); i < cut.singles; i += index_stride()) {
    combine_at<1, T, Op>(to, from, cut.single(i));
  }
}

template <class T, class Op, int Capacity>
void launch_combine(T* to, std::span<const void* const> from, std::int64_t elems, DType dtype,
                    cudaStream_t stream) {
  Sources<Capacity> sources;
  std::copy(from.begin(), from.end(), sources.at);
  sources.count = static_cast<int>(from.size());
  std::vector<ConstValues> arrays{{to, dtype}};
  for (const void* const source : from) { arrays.emplace_back(source, dtype); }
  const auto parts = cut<kPack<T>>(elems, arrays);
  launch(combine_kernel<T, Op, Capacity>, grid_for(std::max(parts.tiles, parts.singles)), stream,
         to, sources, parts);
}

template <class T, class Op>
void with_capacity(T* to, std::span<const void* const> from, std::int64_t elems, DType dtype,
                   cudaStream_t stream) {
  if (from.size() <= 8) { return launch_combine<T, Op, 8>(to, from, elems, dtype, stream); }
  if (from.size() <= 64) { return launch_combine<T, Op, 64>(to, from, elems, dtype, stream); }
  launch_combine<T, Op, kMostCombined>(to, from, elems, dtype, stream);
}

template <class T>
void with_op(void* to, std::span<const void* const> from, std::int64_t elems, DType dtype,
             ReduceOp op, cudaStream_t stream) {
  if (op == ReduceOp::sum) {
    with_capacity<T, Add>(static_cast<T*>(to), from, elems, dtype, stream);
  } else {
    with_capacity<T, Max>(static_cast<T*>(to), from, elems, dtype, stream);
  }
}

}  // namespace

void combine(void* to, std::span<const void* const> from, std::int64_t elems, DType dtype,
             ReduceOp op, Stream stream) {
  expects(!from.empty() && from.size() <= kMostCombined, "combine: 1 to 1,024 sources");
  if (dtype == DType::fp64) {
    return with_op<double>(to, from, elems, dtype, op, cuda_stream(stream).open());
  }
  with_device_type(dtype, [&]<class T>(std::type_identity<T>) {
    with_op<T>(to, from, elems, dtype, op, cuda_stream(stream).open());
  });
}

}  // namespace tessera::kernels::cuda
