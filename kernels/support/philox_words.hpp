#pragma once

#include <array>
#include <cstdint>
#include <cstring>

#include "kernels/support/vec.hpp"

namespace tessera::kernels {

/// A position in the stream of one key: the counters are {low and high 32 bits of a group's number,
/// `third`, `fourth`}.
struct PhiloxStream {
  std::array<std::uint32_t, 2> key;
  std::uint32_t third;
  std::uint32_t fourth;
};

/// Groups of four words that `philox_words` makes at once, and the number of their words.
inline constexpr std::uint64_t kPhiloxGroups = 16;
inline constexpr std::int64_t kPhiloxWords = 4 * kPhiloxGroups;

namespace detail {

// Four counters side by side, each word in the low half of a 64-bit lane. The high half, which a
// product fills, is never read.
using Words = std::uint64_t __attribute__((vector_size(32)));
inline constexpr std::uint64_t kLowWord = 0xFFFFFFFF;
// Sets of four that pass through the rounds together: one multiplies while another waits.
inline constexpr std::uint64_t kSets = kPhiloxGroups / 4;

// Multiplies the low halves.
[[gnu::always_inline]] inline Words multiply(Words a, std::uint64_t b) noexcept {
#if TESSERA_KERNELS_AVX2
  return reinterpret_cast<Words>(_mm256_mul_epu32(reinterpret_cast<__m256i>(a),
                                                  _mm256_set1_epi64x(static_cast<long long>(b))));
#else
  return (a & kLowWord) * b;
#endif
}

}  // namespace detail

/// words[i] = word i % 4 of philox4x32 of group `group` + i / 4, for i in [0, kPhiloxWords).
[[gnu::always_inline]] inline void philox_words(const PhiloxStream& stream, std::uint64_t group,
                                                std::uint32_t* words) noexcept {
  using detail::kLowWord;
  using detail::kSets;
  using detail::Words;
  Words c[kSets][4] = {};
  for (std::uint64_t s = 0; s < kSets; ++s) {
    // A group's number fills the counter's two lower words, with a carry from one to the other.
    const Words groups = (group + 4 * s) + Words{0, 1, 2, 3};
    c[s][0] = groups;
    c[s][1] = groups >> 32U;
    c[s][2] += stream.third;
    c[s][3] += stream.fourth;
  }
  auto [k0, k1] = stream.key;
  for (int round = 0; round < 10; ++round) {
    for (Words(&set)[4] : c) {
      const Words product0 = detail::multiply(set[0], 0xD2511F53);
      const Words product1 = detail::multiply(set[2], 0xCD9E8D57);
      set[0] = (product1 >> 32U) ^ set[1] ^ std::uint64_t{k0};
      set[1] = product1;
      set[2] = (product0 >> 32U) ^ set[3] ^ std::uint64_t{k1};
      set[3] = product0;
    }
    k0 += 0x9E3779B9U;
    k1 += 0xBB67AE85U;
  }
  for (std::uint64_t s = 0; s < kSets; ++s) {
    const Words front = (c[s][0] & kLowWord) | (c[s][1] << 32U);
    const Words back = (c[s][2] & kLowWord) | (c[s][3] << 32U);
    for (std::uint64_t lane = 0; lane < 4; ++lane) {
      const std::uint64_t pair[2] = {front[lane], back[lane]};
      std::memcpy(words + 16 * s + 4 * lane, pair, sizeof pair);
    }
  }
}

}  // namespace tessera::kernels
