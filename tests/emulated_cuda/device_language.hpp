#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "emulated_cuda/block.hpp"

// nvcc's additions to C++ for kernel code.

#ifndef __launch_bounds__
#define __launch_bounds__(...)
#endif
#undef __maxnreg__  // the toolkit's is an attribute that other compilers warn about
#define __maxnreg__(...)

extern constinit thread_local uint3 threadIdx;
extern constinit thread_local uint3 blockIdx;
extern constinit thread_local dim3 blockDim;
extern constinit thread_local dim3 gridDim;
inline constexpr int warpSize = 32;

inline void __syncthreads() {
  emulated_cuda::block_barrier(0);
}
inline int __syncthreads_count(int predicate) {
  return emulated_cuda::block_barrier(predicate != 0 ? 1 : 0);
}
inline int __syncthreads_or(int predicate) {
  return static_cast<int>(__syncthreads_count(predicate) != 0);
}
inline int __syncthreads_and(int predicate) {
  return static_cast<int>(__syncthreads_count(predicate == 0 ? 1 : 0) == 0);
}

// One thread of a grid runs at a time, and switches to others in calls that are opaque to the
// compiler. The orders differ to tell races/ the scope.
inline void __threadfence() {
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
inline void __threadfence_block() {
  __atomic_thread_fence(__ATOMIC_ACQ_REL);
}
inline void __threadfence_system() {
  __threadfence();
}

namespace emulated_cuda {

template <class T>
T shuffled(WarpCall::Kind kind, unsigned mask, T value, int lane, int width) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 8 && !std::is_same_v<T, bool> &&
                    !std::is_same_v<T, char> && !std::is_same_v<T, short>,
                "CUDA shuffles numbers of 32 and 64 bits, and half precision");
  WarpCall call;
  call.kind = kind;
  call.mask = mask;
  call.operand = lane;
  call.width = width;
  std::memcpy(&call.value, &value, sizeof(T));
  const std::uint64_t bits = warp_call(call);
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}

inline std::uint64_t voted(WarpCall::Kind kind, unsigned mask, std::uint64_t value) {
  WarpCall call;
  call.kind = kind;
  call.mask = mask;
  call.value = value;
  return warp_call(call);
}

}  // namespace emulated_cuda

template <class T>
T __shfl_sync(unsigned mask, T value, int source, int width = warpSize) {
  return emulated_cuda::shuffled(emulated_cuda::WarpCall::from_lane, mask, value, source, width);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = warpSize) {
  return emulated_cuda::shuffled(emulated_cuda::WarpCall::up, mask, value, static_cast<int>(delta),
                                 width);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = warpSize) {
  return emulated_cuda::shuffled(emulated_cuda::WarpCall::down, mask, value,
                                 static_cast<int>(delta), width);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = warpSize) {
  return emulated_cuda::shuffled(emulated_cuda::WarpCall::exclusive_or, mask, value, lanes, width);
}

inline void __syncwarp(unsigned mask = 0xFFFFFFFFU) {
  (void)emulated_cuda::voted(emulated_cuda::WarpCall::sync, mask, 0);
}
inline unsigned __ballot_sync(unsigned mask, int predicate) {
  return static_cast<unsigned>(
      emulated_cuda::voted(emulated_cuda::WarpCall::ballot, mask, predicate != 0 ? 1 : 0));
}
inline int __any_sync(unsigned mask, int predicate) {
  return static_cast<int>(__ballot_sync(mask, predicate) != 0);
}
inline int __all_sync(unsigned mask, int predicate) {
  return static_cast<int>(__ballot_sync(mask, predicate) == mask);
}
/// The lanes whose `value` has the same bits.
template <class T>
unsigned __match_any_sync(unsigned mask, T value) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8);
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  return static_cast<unsigned>(emulated_cuda::voted(emulated_cuda::WarpCall::match, mask, bits));
}

// Streams run concurrently, so these are atomic across host threads too.
template <class T>
concept EmulatedAtomicInteger = std::is_integral_v<T> && (sizeof(T) == 4 || sizeof(T) == 8);

template <EmulatedAtomicInteger T>
T atomicAdd(T* at, std::type_identity_t<T> value) {
  return __atomic_fetch_add(at, value, __ATOMIC_RELAXED);
}
template <EmulatedAtomicInteger T>
T atomicOr(T* at, std::type_identity_t<T> value) {
  return __atomic_fetch_or(at, value, __ATOMIC_RELAXED);
}
template <EmulatedAtomicInteger T>
T atomicAnd(T* at, std::type_identity_t<T> value) {
  return __atomic_fetch_and(at, value, __ATOMIC_RELAXED);
}
template <EmulatedAtomicInteger T>
T atomicExch(T* at, std::type_identity_t<T> value) {
  return __atomic_exchange_n(at, value, __ATOMIC_RELAXED);
}
template <EmulatedAtomicInteger T>
T atomicCAS(T* at, std::type_identity_t<T> expected, std::type_identity_t<T> value) {
  (void)__atomic_compare_exchange_n(at, &expected, value, false, __ATOMIC_RELAXED,
                                    __ATOMIC_RELAXED);
  return expected;
}
template <EmulatedAtomicInteger T>
T atomicMax(T* at, std::type_identity_t<T> value) {
  T seen = __atomic_load_n(at, __ATOMIC_RELAXED);
  while (seen < value && !__atomic_compare_exchange_n(at, &seen, value, false, __ATOMIC_RELAXED,
                                                      __ATOMIC_RELAXED)) {}
  return seen;
}
template <EmulatedAtomicInteger T>
T atomicMin(T* at, std::type_identity_t<T> value) {
  T seen = __atomic_load_n(at, __ATOMIC_RELAXED);
  while (value < seen && !__atomic_compare_exchange_n(at, &seen, value, false, __ATOMIC_RELAXED,
                                                      __ATOMIC_RELAXED)) {}
  return seen;
}
/// Counts up to `last`, then restarts at 0.
inline unsigned atomicInc(unsigned* at, unsigned last) {
  unsigned seen = __atomic_load_n(at, __ATOMIC_RELAXED);
  while (!__atomic_compare_exchange_n(at, &seen, seen >= last ? 0 : seen + 1, false,
                                      __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {}
  return seen;
}
