#pragma once

#include <cstdint>

#include "kernels/support/cuda/cuda_lanes.cuh"

namespace tessera::kernels::cuda {

/// K arrays of one dtype.
template <class T, int K>
struct Inputs {
  const T* at[K];
};

// Both loops have a pack of every array in flight in each of the 2,048 threads of a multiprocessor:
// 32 KB of each array, more than its share of what keeps the memory busy.
template <class Function, class T, int K>
__global__ void map_kernel(Inputs<T, K> in, T* y, std::int64_t packs, std::int64_t elems) {
  constexpr int N = kPack<T>;
  for (std::int64_t p = first_index(); p < packs; p += index_stride()) {
    Pack<T, N> loaded[K];
#pragma unroll
    for (int k = 0; k < K; ++k) { loaded[k] = load_pack<N>(in.at[k] + p * N); }
    float x[K][N];
#pragma unroll
    for (int k = 0; k < K; ++k) { to_floats(loaded[k], x[k]); }
    Pack<T, N> out;
#pragma unroll
    for (int j = 0; j < N; ++j) {
      float values[K];
#pragma unroll
      for (int k = 0; k < K; ++k) { values[k] = x[k][j]; }
      out.at[j] = from_float<T>(Function{}(values));
    }
    store_pack(y + p * N, out);
  }
  for (std::int64_t i = packs * N + first_index(); i < elems; i += index_stride()) {
    float values[K];
#pragma unroll
    for (int k = 0; k < K; ++k) { values[k] = to_float(in.at[k][i]); }
    y[i] = from_float<T>(Function{}(values));
  }
}

/// y[i] = Function{}({in[0][i], in[1][i], ...}), computed in fp32. y may be one of the inputs; the
/// bits of an element depend only on its inputs.
template <class Function, class T, int K>
void map(const Inputs<T, K>& in, T* y, std::int64_t elems, Stream stream) {
  bool aligned = is_aligned<kPack<T>>(y);
  for (const T* x : in.at) { aligned = aligned && is_aligned<kPack<T>>(x); }
  const std::int64_t packs = aligned ? elems / kPack<T> : 0;
  const std::int64_t items = packs > 0 ? packs : elems;
  launch(map_kernel<Function, T, K>, grid_for(items), cuda_stream(stream).open(), in, y, packs,
         elems);
}

}  // namespace tessera::kernels::cuda
