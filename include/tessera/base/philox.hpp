#pragma once

#include <array>
#include <cstdint>

namespace tessera {

/// Returns four random 32-bit words by Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random
/// numbers: as easy as 1, 2, 3", SC11): for each key a bijection of the 128-bit counter. It keeps
/// no state, so that any rank computes any element of the sequence, in any order.
[[nodiscard]] constexpr std::array<std::uint32_t, 4> philox4x32(
    std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key) noexcept {
  constexpr std::uint64_t multiplier0 = 0xD2511F53;
  constexpr std::uint64_t multiplier1 = 0xCD9E8D57;
  constexpr std::uint32_t weyl0 = 0x9E3779B9;  // golden ratio
  constexpr std::uint32_t weyl1 = 0xBB67AE85;  // sqrt(3) - 1
  constexpr int rounds = 10;
  for (int round = 0; round < rounds; ++round) {
    const std::uint64_t product0 = multiplier0 * counter[0];
    const std::uint64_t product1 = multiplier1 * counter[2];
    counter = {static_cast<std::uint32_t>(product1 >> 32) ^ counter[1] ^ key[0],
               static_cast<std::uint32_t>(product1),
               static_cast<std::uint32_t>(product0 >> 32) ^ counter[3] ^ key[1],
               static_cast<std::uint32_t>(product0)};
    key = {key[0] + weyl0, key[1] + weyl1};
  }
  return counter;
}

}  // namespace tessera
