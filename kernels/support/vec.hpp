#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#if defined(__AVX2__) && defined(__FMA__)
#include <immintrin.h>
#define TESSERA_KERNELS_AVX2 1
#else
#define TESSERA_KERNELS_AVX2 0
#endif

// Eight floats in a register, in the compiler's vector extension: arithmetic is lane by lane and
// correctly rounded, so a value's bits do not depend on the lane it falls into, and reductions
// written with it have an order that no alignment and no optimisation level changes.

#if defined(__GNUC__) && !defined(__clang__) && !defined(__AVX__)
// Every function below is inlined: none passes a Vec across an interface.
#pragma GCC diagnostic ignored "-Wpsabi"
#endif

namespace tessera::kernels {

inline constexpr std::int64_t kLanes = 8;

using Vec = float __attribute__((vector_size(32)));
using IntVec = std::int32_t __attribute__((vector_size(32)));
using HalfVec = float __attribute__((vector_size(16)));
using DoubleVec = double __attribute__((vector_size(32)));

/// All lanes `value`.
[[gnu::always_inline]] inline Vec splat(float value) noexcept {
  return value - Vec{};
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

/// How a loop reads and writes eight floats, or the fewer that are left at its end (the other
/// lanes read as 0).
struct FullLanes {
  [[gnu::always_inline]] Vec read(const float* p) const noexcept { return load(p); }
  [[gnu::always_inline]] void write(float* p, Vec v) const noexcept { store(p, v); }
  [[gnu::always_inline]] Vec mask(Vec v, float) const noexcept { return v; }
};
struct SomeLanes {
  std::int64_t count;
  [[gnu::always_inline]] Vec read(const float* p) const noexcept { return load_part(p, count); }
  [[gnu::always_inline]] void write(float* p, Vec v) const noexcept { store_part(p, count, v); }
  /// `v`, with `fill` in the lanes beyond the end.
  [[gnu::always_inline]] Vec mask(Vec v, float fill) const noexcept {
    constexpr IntVec index = {0, 1, 2, 3, 4, 5, 6, 7};
    return index < static_cast<std::int32_t>(count) ? v : splat(fill);
  }
};

/// body(i, lanes) for i = 0, 8, 16 ... up to `elems`.
template <class Body>
[[gnu::always_inline]] inline void for_lanes(std::int64_t elems, Body body) {
  std::int64_t i = 0;
  for (; i + kLanes <= elems; i += kLanes) { body(i, FullLanes{}); }
  if (i < elems) { body(i, SomeLanes{elems - i}); }
}

// One instruction each where there is one; the fallback gives the same bits.

/// The larger of each pair; b where they do not compare (a NaN).
[[gnu::always_inline]] inline Vec max(Vec a, Vec b) noexcept {
#if TESSERA_KERNELS_AVX2
  return _mm256_max_ps(a, b);
#else
  return a > b ? a : b;
#endif
}

/// The smaller of each pair; b where they do not compare (a NaN).
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

/// The lanes added in fp64, in order.
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
