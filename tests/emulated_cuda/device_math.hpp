#pragma once

#include <cuda_runtime_api.h>
#include <math.h>  // kernels call expf, not std::exp

#include <bit>
#include <cstdint>
#include <type_traits>

// CUDA functions that the C library lacks. Functions that a GPU rounds correctly are correctly
// rounded here; approximate ones (rsqrtf, __expf, ...) differ in their last bits.

template <class A, class B>
  requires std::is_arithmetic_v<A> && std::is_arithmetic_v<B>
constexpr std::common_type_t<A, B> max(A a, B b) {
  using Type = std::common_type_t<A, B>;
  if constexpr (std::is_floating_point_v<Type>) {
    return fmax(static_cast<Type>(a), static_cast<Type>(b));
  } else {
    return static_cast<Type>(a) < static_cast<Type>(b) ? static_cast<Type>(b)
                                                       : static_cast<Type>(a);
  }
}
template <class A, class B>
  requires std::is_arithmetic_v<A> && std::is_arithmetic_v<B>
constexpr std::common_type_t<A, B> min(A a, B b) {
  using Type = std::common_type_t<A, B>;
  if constexpr (std::is_floating_point_v<Type>) {
    return fmin(static_cast<Type>(a), static_cast<Type>(b));
  } else {
    return static_cast<Type>(b) < static_cast<Type>(a) ? static_cast<Type>(b)
                                                       : static_cast<Type>(a);
  }
}

inline float rsqrtf(float x) {
  return 1.0F / sqrtf(x);
}
inline double rsqrt(double x) {
  return 1.0 / sqrt(x);
}
inline float __expf(float x) {
  return expf(x);
}
inline float __exp2f(float x) {
  return exp2f(x);
}
inline float __logf(float x) {
  return logf(x);
}
inline float __log2f(float x) {
  return log2f(x);
}
inline float __tanhf(float x) {
  return tanhf(x);
}
inline float __fdividef(float x, float y) {
  return x / y;
}
inline float __saturatef(float x) {
  return fminf(fmaxf(x, 0.0F), 1.0F);
}

inline float __fmaf_rn(float x, float y, float z) {
  return fmaf(x, y, z);
}
inline float __fadd_rn(float x, float y) {
  return x + y;
}
inline float __fsub_rn(float x, float y) {
  return x - y;
}
inline float __fmul_rn(float x, float y) {
  return x * y;
}
inline float __fdiv_rn(float x, float y) {
  return x / y;
}
inline float __fsqrt_rn(float x) {
  return sqrtf(x);
}
inline float __frcp_rn(float x) {
  return 1.0F / x;
}
inline double __dadd_rn(double x, double y) {
  return x + y;
}
inline double __dmul_rn(double x, double y) {
  return x * y;
}
inline double __ddiv_rn(double x, double y) {
  return x / y;
}
inline double __dsqrt_rn(double x) {
  return sqrt(x);
}
inline double __fma_rn(double x, double y, double z) {
  return fma(x, y, z);
}

inline unsigned __float_as_uint(float x) {
  return std::bit_cast<unsigned>(x);
}
inline int __float_as_int(float x) {
  return std::bit_cast<int>(x);
}
inline float __uint_as_float(unsigned x) {
  return std::bit_cast<float>(x);
}
inline float __int_as_float(int x) {
  return std::bit_cast<float>(x);
}
inline long long __double_as_longlong(double x) {
  return std::bit_cast<long long>(x);
}
inline double __longlong_as_double(long long x) {
  return std::bit_cast<double>(x);
}

inline unsigned __umulhi(unsigned x, unsigned y) {
  return static_cast<unsigned>((std::uint64_t{x} * y) >> 32U);
}
inline int __mulhi(int x, int y) {
  return static_cast<int>((std::int64_t{x} * y) >> 32);
}
inline unsigned long long __umul64hi(unsigned long long x, unsigned long long y) {
  __extension__ using Wide = unsigned __int128;
  return static_cast<unsigned long long>((Wide{x} * y) >> 64U);
}
inline int __popc(unsigned x) {
  return std::popcount(x);
}
inline int __popcll(unsigned long long x) {
  return std::popcount(x);
}
inline int __clz(int x) {
  return std::countl_zero(static_cast<unsigned>(x));
}
inline int __clzll(long long x) {
  return std::countl_zero(static_cast<unsigned long long>(x));
}
inline int __ffs(int x) {
  return __builtin_ffs(x);
}

// Cache hints have no effect.
template <class T>
T __ldg(const T* from) {
  return *from;
}
template <class T>
T __ldcs(const T* from) {
  return *from;
}
template <class T>
T __ldcg(const T* from) {
  return *from;
}
template <class T>
T __ldca(const T* from) {
  return *from;
}
template <class T>
void __stcs(T* to, std::type_identity_t<T> value) {
  *to = value;
}
template <class T>
void __stcg(T* to, std::type_identity_t<T> value) {
  *to = value;
}
template <class T>
void __stwt(T* to, std::type_identity_t<T> value) {
  *to = value;
}
