#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <bit>
#include <cstdint>
#include <type_traits>

#include "device/cuda/cuda_launch.cuh"
#include "device/cuda/cuda_stream.hpp"
#include "kernels/support/typed.hpp"
#include "tessera/base/values.hpp"

// Elements of any dtype in CUDA kernels, converted to and from fp32, 16 bytes at a time.
namespace tessera::kernels::cuda {

using tessera::cuda::cuda_stream;
using tessera::cuda::first_index;
using tessera::cuda::Grid;
using tessera::cuda::grid_for;
using tessera::cuda::index_stride;
using tessera::cuda::launch;

/// CUDA's type for a dtype.
template <class T>
struct Device;
template <>
struct Device<float> {
  using Type = float;
};
template <>
struct Device<bfloat16> {
  using Type = __nv_bfloat16;
};
template <>
struct Device<float16> {
  using Type = __half;
};

/// Converts exactly.
__device__ inline float to_float(float x) {
  return x;
}
__device__ inline float to_float(__nv_bfloat16 x) {
  return __bfloat162float(x);
}
__device__ inline float to_float(__half x) {
  return __half2float(x);
}

/// Rounds to nearest, ties to even.
template <class T>
__device__ inline T from_float(float x) {
  if constexpr (std::is_same_v<T, float>) {
    return x;
  } else if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    return __float2bfloat16_rn(x);
  } else {
    return __float2half_rn(x);
  }
}

/// Calls body(std::type_identity<T>{}) on the host, where T is CUDA's type for `dtype`.
template <class Body>
void with_device_type(DType dtype, Body&& body) {
  with_type(dtype, [&]<class T>(std::type_identity<T>) {
    body(std::type_identity<typename Device<T>::Type>{});
  });
}

/// Like with_device_type, for two types: body(std::type_identity<A>{}, std::type_identity<B>{}).
template <class Body>
void with_device_types(DType first, DType second, Body&& body) {
  with_device_type(first, [&]<class A>(std::type_identity<A> a) {
    with_device_type(second, [&]<class B>(std::type_identity<B> b) { body(a, b); });
  });
}

/// N neighbouring elements, read and written in one access of N * sizeof(T) bytes (at most 16) at a
/// multiple of that size.
template <class T, int N>
struct alignas(N * sizeof(T)) Pack {
  T at[N];
};

template <int N, class T>
__device__ inline Pack<T, N> load_pack(const T* from) {
  return *reinterpret_cast<const Pack<T, N>*>(from);
}
template <int N, class T>
__device__ inline void store_pack(T* to, const Pack<T, N>& pack) {
  *reinterpret_cast<Pack<T, N>*>(to) = pack;
}

/// to[j] = pack.at[j], exactly.
template <class T, int N>
__device__ inline void to_floats(const Pack<T, N>& pack, float (&to)[N]) {
  if constexpr (std::is_same_v<T, __nv_bfloat16> && N % 2 == 0) {
    // An instruction for each element. With to_float, nvcc takes two for those in upper halves.
    const auto words = std::bit_cast<Pack<std::uint32_t, N / 2>>(pack);
#pragma unroll
    for (int j = 0; j < N; j += 2) {
      to[j] = std::bit_cast<float>(words.at[j / 2] << 16U);
      to[j + 1] = std::bit_cast<float>(words.at[j / 2] & 0xFFFF0000U);
    }
  } else {
#pragma unroll
    for (int j = 0; j < N; ++j) { to[j] = to_float(pack.at[j]); }
  }
}

/// Whether an array may be accessed in packs of N from its first element on.
template <int N, class T>
[[nodiscard]] bool is_aligned(const T* data) noexcept {
  return reinterpret_cast<std::uintptr_t>(data) % (N * sizeof(T)) == 0;
}

}  // namespace tessera::kernels::cuda
