#pragma once

#include <array>
#include <bit>
#include <cstdint>

namespace tessera::data {

/// The mixing function of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014): a bijection of 64 bits in
/// which every input bit changes about half of the output.
[[nodiscard]] constexpr std::uint64_t mix64(std::uint64_t x) noexcept {
  x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27U)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31U);
}

/// A permutation of [0, size), size >= 1, determined by (seed, stream) and computed entry by entry.
///
/// A Feistel network permutes [0, 4^k), the smallest such range that contains `size`; an entry that
/// leaves [0, size) is mapped again until it is back (cycle walking), on average less than four
/// times. Neither step can map two entries to one, whatever the round function.
class Permutation {
 public:
  Permutation(std::int64_t size, std::uint64_t seed, std::uint64_t stream) noexcept
      : size_{static_cast<std::uint64_t>(size)},
        half_bits_{(static_cast<unsigned>(std::bit_width(size_ - 1)) + 1) / 2},
        mask_{(std::uint64_t{1} << half_bits_) - 1} {
    std::uint64_t state = mix64(seed + kStep) ^ mix64(mix64(stream + 2 * kStep));
    for (std::uint64_t& key : keys_) { key = mix64(state += kStep); }
  }

  /// The image of entry `index` of [0, size).
  [[nodiscard]] std::int64_t operator()(std::int64_t index) const noexcept {
    auto x = static_cast<std::uint64_t>(index);
    do { x = network(x); } while (x >= size_);
    return static_cast<std::int64_t>(x);
  }

 private:
  // An odd constant without pattern, so that consecutive seeds and streams start far apart.
  static constexpr std::uint64_t kStep = 0x9e3779b97f4a7c15U;

  [[nodiscard]] std::uint64_t network(std::uint64_t x) const noexcept {
    std::uint64_t left = x >> half_bits_;
    std::uint64_t right = x & mask_;
    for (const std::uint64_t key : keys_) {
      const std::uint64_t mixed = left ^ (mix64(right + key) & mask_);
      left = right;
      right = mixed;
    }
    return (left << half_bits_) | right;
  }

  std::uint64_t size_;
  unsigned half_bits_;
  std::uint64_t mask_;
  std::array<std::uint64_t, 8> keys_{};
};

}  // namespace tessera::data
