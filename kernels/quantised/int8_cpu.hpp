#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

#include "kernels/quantised/codes.hpp"
#include "kernels/support/vec.hpp"

// Codes of int8 from and to eight lanes. Without AVX2 the bits are the same.

namespace tessera::kernels::cpu {

/// codes[0 .. 8) as floats.
[[gnu::always_inline]] inline Vec int8_values(const std::int8_t* codes) noexcept {
  using Bytes = std::int8_t __attribute__((vector_size(8)));
  Bytes bytes;
  std::memcpy(&bytes, codes, sizeof bytes);
#if TESSERA_KERNELS_AVX2
  const __m128i low = _mm_cvtsi64_si128(std::bit_cast<std::int64_t>(bytes));
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(low));
#else
  return __builtin_convertvector(__builtin_convertvector(bytes, IntVec), Vec);
#endif
}

/// Rounds 32 values from -127 to 127 to codes, to nearest, ties to even; a NaN becomes -127.
[[gnu::always_inline]] inline void write_int8(const Vec (&values)[4], std::int8_t* to) noexcept {
  IntVec codes[4];
  for (int i = 0; i < 4; ++i) {
    const Vec shifted = max(values[i], splat(-127.0F)) + kRoundingShift;
    codes[i] = std::bit_cast<IntVec>(shifted) - std::bit_cast<std::int32_t>(kRoundingShift);
  }
#if TESSERA_KERNELS_AVX2
  const auto bits = [&](int i) { return std::bit_cast<__m256i>(codes[i]); };
  const __m256i packed = _mm256_packs_epi16(_mm256_packs_epi32(bits(0), bits(1)),
                                            _mm256_packs_epi32(bits(2), bits(3)));
  // Each half holds four codes of each vector.
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  const __m256i result = _mm256_permutevar8x32_epi32(packed, order);
  std::memcpy(to, &result, sizeof result);
#else
  for (int i = 0; i < 32; ++i) { to[i] = static_cast<std::int8_t>(codes[i / 8][i % 8]); }
#endif
}

}  // namespace tessera::kernels::cpu
