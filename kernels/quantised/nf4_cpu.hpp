#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/quantised/codes.hpp"
#include "kernels/support/vec.hpp"
#include "tessera/kernels/quantised.hpp"

// Codes of NF4, eight lanes or a block of 64 at a time. The loops without AVX2 give the same bits.

namespace tessera::kernels::cpu {

/// The code of each lane: CodeMap::code.
[[gnu::always_inline]] inline IntVec nf4_codes(Vec x) noexcept {
  constexpr auto& m = kNF4Map.midpoints;
#if TESSERA_KERNELS_AVX2
  // The midpoints of the third and fourth comparison, by the bits found before.
  constexpr Vec third = {m[1], m[5], m[9], m[13]};
  constexpr Vec fourth = {m[0], m[2], m[4], m[6], m[8], m[10], m[12], m[14]};
  const auto at = [](Vec table, IntVec index) -> Vec {
    return _mm256_permutevar8x32_ps(table, std::bit_cast<__m256i>(index));
  };
  const IntVec high = x > splat(m[7]);
  IntVec code = high & 8;
  code |= (x > (high ? splat(m[11]) : splat(m[3]))) & 4;
  code |= (x > at(third, code >> 2)) & 2;
  code |= (x > at(fourth, code >> 1)) & 1;
  return code;
#else
  IntVec code{};
  for (int i = 0; i < 15; ++i) { code -= x > splat(m[i]); }
  return code;
#endif
}

/// Packs the codes of 32 elements into 16 bytes.
[[gnu::always_inline]] inline void pack_codes(const IntVec (&codes)[4], std::uint8_t* to) noexcept {
#if TESSERA_KERNELS_AVX2
  using Words = std::uint64_t __attribute__((vector_size(32)));
  const IntVec bytes = codes[0] | codes[1] << 8 | codes[2] << 16 | codes[3] << 24;
  const auto pairs = std::bit_cast<Words>(bytes);
  // Byte k of the low half of word p is byte 4 k + p of the result.
  const auto packed = std::bit_cast<__m256i>(pairs << 4U | pairs >> 32U);
  const __m256i low =
      _mm256_permutevar8x32_epi32(packed, _mm256_setr_epi32(0, 2, 4, 6, 0, 2, 4, 6));
  const __m128i order = _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  const __m128i result = _mm_shuffle_epi8(_mm256_castsi256_si128(low), order);
  std::memcpy(to, &result, sizeof result);
#else
  for (int i = 0; i < 16; ++i) {
    const IntVec& eight = codes[i / 4];
    to[i] = static_cast<std::uint8_t>(eight[2 * (i % 4)] << 4 | eight[2 * (i % 4) + 1]);
  }
#endif
}

/// The 16 values times the largest magnitude of a block, rounded to T: what its elements can be.
template <class T>
class NF4Products {
 public:
  explicit NF4Products(float absmax) noexcept {
    store(at_, load(kNF4Map.values) * absmax);
    store(at_ + kLanes, load(kNF4Map.values + kLanes) * absmax);
  }

  void write_some(const std::uint8_t* codes, T* to, std::int64_t elems) const noexcept {
    for (std::int64_t i = 0; i < elems; ++i) {
      to[i] = at_[i % 2 == 0 ? codes[i / 2] >> 4U : codes[i / 2] & 15U];
    }
  }

  /// Writes the kNF4Block elements of a block.
  void write_block(const std::uint8_t* codes, T* to) const noexcept {
#if TESSERA_KERNELS_AVX2
    if constexpr (std::is_same_v<T, float>) {
      write_floats(codes, to);
    } else {
      write_halves(codes, to);
    }
#else
    write_some(codes, to, kNF4Block);
#endif
  }

 private:
#if TESSERA_KERNELS_AVX2
  void write_floats(const std::uint8_t* codes, float* to) const noexcept {
    const Vec low = load(at_);
    const Vec high = load(at_ + kLanes);
    for (std::int64_t i = 0; i < kNF4Block; i += kLanes) {
      std::int32_t word = 0;
      std::memcpy(&word, codes + i / 2, sizeof word);
      // Each lane's code, and above it those of later elements.
      const __m256i all = _mm256_srlv_epi32(_mm256_set1_epi32(word),
                                            _mm256_setr_epi32(4, 0, 12, 8, 20, 16, 28, 24));
      const Vec of_high = _mm256_castsi256_ps(_mm256_slli_epi32(all, 28));  // its sign decides
      store(to + i, _mm256_blendv_ps(_mm256_permutevar8x32_ps(low, all),
                                     _mm256_permutevar8x32_ps(high, all), of_high));
    }
  }

  /// Looks up the two bytes of each product separately, 16 at a time.
  void write_halves(const std::uint8_t* codes, T* to) const noexcept {
    const auto bytes = [](const void* from) {
      return _mm_loadu_si128(static_cast<const __m128i*>(from));
    };
    const __m128i split = _mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15);
    const __m128i first = _mm_shuffle_epi8(bytes(at_), split);
    const __m128i last = _mm_shuffle_epi8(bytes(at_ + kLanes), split);
    const __m128i low = _mm_unpacklo_epi64(first, last);
    const __m128i high = _mm_unpackhi_epi64(first, last);
    const __m128i mask = _mm_set1_epi8(15);
    const auto write = [=](__m128i code, T* target) {
      const __m128i lows = _mm_shuffle_epi8(low, code);
      const __m128i highs = _mm_shuffle_epi8(high, code);
      auto* const two = reinterpret_cast<__m128i*>(target);
      _mm_storeu_si128(two, _mm_unpacklo_epi8(lows, highs));
      _mm_storeu_si128(two + 1, _mm_unpackhi_epi8(lows, highs));
    };
    for (std::int64_t i = 0; i < kNF4Block; i += 32) {
      const __m128i both = bytes(codes + i / 2);
      const __m128i even = _mm_and_si128(_mm_srli_epi16(both, 4), mask);
      const __m128i odd = _mm_and_si128(both, mask);
      write(_mm_unpacklo_epi8(even, odd), to + i);
      write(_mm_unpackhi_epi8(even, odd), to + i + 16);
    }
  }
#endif

  alignas(64) T at_[16];
};

}  // namespace tessera::kernels::cpu
