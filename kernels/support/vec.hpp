#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "tessera/base/half.hpp"

#if defined(__AVX2__) && defined(__FMA__)
#include <immintrin.h>
#define TESSERA_KERNELS_AVX2 1
#else
#define TESSERA_KERNELS_AVX2 0
#endif
#if TESSERA_KERNELS_AVX2 && defined(__F16C__)
#define TESSERA_KERNELS_F16C 1
#else
#define TESSERA_KERNELS_F16C 0
#endif

// Eight floats in a register, in the compiler's vector extension: arithmetic is lane by lane and
// correctly rounded, so a value's bits do not depend on its lane, and the order of reductions
// written with it does not depend on alignment or optimisation level.

#if defined(__GNUC__) && !defined(__clang__) && !defined(__AVX__)
// Every function below is inlined: no Vec is passed across an interface.
#pragma GCC diagnostic ignored "-Wpsabi"
#endif

namespace tessera::kernels {

inline constexpr std::int64_t kLanes = 8;

using Vec = float __attribute__((vector_size(32)));
using IntVec = std::int32_t __attribute__((vector_size(32)));
using UintVec = std::uint32_t __attribute__((vector_size(32)));
using ShortVec = std::uint16_t __attribute__((vector_size(16)));
using HalfVec = float __attribute__((vector_size(16)));
using DoubleVec = double __attribute__((vector_size(32)));

/// All lanes `value`.
[[gnu::always_inline]] inline Vec splat(float value) noexcept {
  return value - Vec{};
}

// 16-bit values are read as floats, exactly, and rounded to nearest (ties to even) when they are
// written, with the bits of from_float.

[[gnu::always_inline]] inline Vec widen(ShortVec bits, bfloat16) noexcept {
  return std::bit_cast<Vec>(__builtin_convertvector(bits, UintVec) << 16U);
}

[[gnu::always_inline]] inline ShortVec narrow(Vec v, bfloat16) noexcept {
  const auto bits = std::bit_cast<UintVec>(v);
  const UintVec rounded = bits + 0x7FFFU + ((bits >> 16U) & 1U);
  const UintVec quiet = bits | 0x400000U;
  const UintVec kept = (bits & 0x7FFFFFFFU) > 0x7F800000U ? quiet : rounded;
  return __builtin_convertvector(kept >> 16U, ShortVec);
}

[[gnu::always_inline]] inline Vec widen(ShortVec bits, float16) noexcept {
#if TESSERA_KERNELS_F16C
  return _mm256_cvtph_ps(std::bit_cast<__m128i>(bits));
#else
  Vec v;
  for (std::int64_t l = 0; l < kLanes; ++l) { v[l] = float16{bits[l]}.to_float(); }
  return v;
#endif
}

[[gnu::always_inline]] inline ShortVec narrow(Vec v, float16) noexcept {
#if TESSERA_KERNELS_F16C
  return std::bit_cast<ShortVec>(_mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
#else
  ShortVec bits;
  for (std::int64_t l = 0; l < kLanes; ++l) { bits[l] = float16::from_float(v[l]).bits; }
  return bits;
#endif
}

/// p[0 .. 8), any alignment.
[[gnu::always_inline]] inline Vec load(const float* p) noexcept {
  Vec v;
  std::memcpy(&v, p, sizeof(v));
  return v;
}

[[gnu::always_inline]] inline void store(float* p, Vec v) noexcept {
  std::memcpy(p, &v, sizeof(v));
}

template <class Half>
[[gnu::always_inline]] inline Vec load(const Half* p) noexcept {
  ShortVec bits;
  std::memcpy(&bits, p, sizeof(bits));
  return widen(bits, Half{});
}

template <class Half>
[[gnu::always_inline]] inline void store(Half* p, Vec v) noexcept {
  const ShortVec bits = narrow(v, Half{});
  std::memcpy(static_cast<void*>(p), &bits, sizeof(bits));
}

/// p[0 .. count), the other lanes `fill`; count in (0, 8).
[[gnu::always_inline]] inline Vec load_part(const float* p, std::int64_t count,
                                            float fill = 0.0F) noexcept {
  Vec v = splat(fill);
  std::memcpy(&v, p, static_cast<std::size_t>(count) * sizeof(float));
  return v;
}

[[gnu::always_inline]] inline void store_part(float* p, std::int64_t count, Vec v) noexcept {
  std::memcpy(p, &v, static_cast<std::size_t>(count) * sizeof(float));
}

/// p[0 .. count), the other lanes 0.
template <class Half>
[[gnu::always_inline]] inline Vec load_part(const Half* p, std::int64_t count) noexcept {
  ShortVec bits{};
  std::memcpy(&bits, p, static_cast<std::size_t>(count) * sizeof(Half));
  return widen(bits, Half{});
}

template <class Half>
[[gnu::always_inline]] inline void store_part(Half* p, std::int64_t count, Vec v) noexcept {
  const ShortVec bits = narrow(v, Half{});
  std::memcpy(static_cast<void*>(p), &bits, static_cast<std::size_t>(count) * sizeof(Half));
}

/// How a loop reads and writes eight values, or at its end those that are left (the other lanes
/// read as 0).
struct FullLanes {
  template <class T>
  [[gnu::always_inline]] Vec read(const T* p) const noexcept {
    return load(p);
  }
  template <class T>
  [[gnu::always_inline]] void write(T* p, Vec v) const noexcept {
    store(p, v);
  }
  [[gnu::always_inline]] Vec mask(Vec v, float) const noexcept { return v; }
};
struct SomeLanes {
  std::int64_t count;
  template <class T>
  [[gnu::always_inline]] Vec read(const T* p) const noexcept {
    return load_part(p, count);
  }
  template <class T>
  [[gnu::always_inline]] void write(T* p, Vec v) const noexcept {
    store_part(p, count, v);
  }
  /// Replaces the lanes beyond the end of `v` by `fill`.
  [[gnu::always_inline]] Vec mask(Vec v, float fill) const noexcept {
    constexpr IntVec index = {0, 1, 2, 3, 4, 5, 6, 7};
    return index < static_cast<std::int32_t>(count) ? v : splat(fill);
  }
};

/// Calls body(i, lanes) for i = 0, 8, 16 ... up to `elems`.
template <class Body>
[[gnu::always_inline]] inline void for_lanes(std::int64_t elems, Body body) {
  std::int64_t i = 0;
  for (; i + kLanes <= elems; i += kLanes) { body(i, FullLanes{}); }
  if (i < elems) { body(i, SomeLanes{elems - i}); }
}

// One instruction each if the processor has one; the fallback gives the same bits.

/// The larger of each pair; b if they are unordered (a NaN).
[[gnu::always_inline]] inline Vec max(Vec a, Vec b) noexcept {
#if TESSERA_KERNELS_AVX2
  return _mm256_max_ps(a, b);
#else
  return a > b ? a : b;
#endif
}

/// The smaller of each pair; b if they are unordered (a NaN).
[[gnu::always_inline]] inline Vec min(Vec a, Vec b) noexcept {
#if TESSERA_KERNELS_AVX2
  return _mm256_min_ps(a, b);
#else
  return a < b ? a : b;
#endif
}

/// a * b + c, rounded once.
[[gnu::always_inline]] inline Vec fma(Vec a, Vec b, Vec c) noexcept {
#if TESSERA_KERNELS_AVX2
  return _mm256_fmadd_ps(a, b, c);
#else
  for (std::int64_t l = 0; l < kLanes; ++l) { c[l] = std::fma(a[l], b[l], c[l]); }
  return c;
#endif
}

/// The sum of the lanes in fp64, in order.
[[gnu::always_inline]] inline double sum_of(Vec v) noexcept {
  double sum = 0.0;
  for (std::int64_t l = 0; l < kLanes; ++l) { sum += static_cast<double>(v[l]); }
  return sum;
}

[[gnu::always_inline]] inline float max_of(Vec v) noexcept {
  float max = v[0];
  for (std::int64_t l = 1; l < kLanes; ++l) { max = v[l] > max ? v[l] : max; }
  return max;
}

}  // namespace tessera::kernels
