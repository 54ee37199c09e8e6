#pragma once

#include "kernels/support/cuda/cuda_element.cuh"

// Sums and maxima over threads, in an order that depends only on their number. Every thread gets
// the result, with the same bits.
namespace tessera::kernels::cuda {

inline constexpr int kWarp = 32;
inline constexpr unsigned kAllLanes = 0xFFFFFFFF;
inline constexpr int kMostWarps = 32;  // per block

template <class T>
__device__ inline T warp_sum(T x) {
#pragma unroll
  for (int lanes = kWarp / 2; lanes > 0; lanes /= 2) { x += __shfl_xor_sync(kAllLanes, x, lanes); }
  return x;
}
/// The largest x of a warp; NaNs are ignored.
__device__ inline float warp_max(float x) {
#pragma unroll
  for (int lanes = kWarp / 2; lanes > 0; lanes /= 2) {
    x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, lanes));
  }
  return x;
}

/// Called by all threads of a block, which consists of whole warps. `shared` may be reused on
/// return.
template <class T>
__device__ inline T block_sum(T x, T (&shared)[kMostWarps]) {
  x = warp_sum(x);
  if (threadIdx.x % kWarp == 0) { shared[threadIdx.x / kWarp] = x; }
  __syncthreads();
  T sum{};
  for (unsigned w = 0; w < blockDim.x / kWarp; ++w) { sum += shared[w]; }
  __syncthreads();
  return sum;
}
__device__ inline float block_max(float x, float (&shared)[kMostWarps]) {
  x = warp_max(x);
  if (threadIdx.x % kWarp == 0) { shared[threadIdx.x / kWarp] = x; }
  __syncthreads();
  float most = shared[0];
  for (unsigned w = 1; w < blockDim.x / kWarp; ++w) { most = fmaxf(most, shared[w]); }
  __syncthreads();
  return most;
}

}  // namespace tessera::kernels::cuda
