#include "tessera/base/philox.hpp"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cstdint>

namespace tessera::philox_test {
namespace {

using Counter = std::array<std::uint32_t, 4>;
using Key = std::array<std::uint32_t, 2>;

// The known answers that the paper's authors publish for Philox4x32-10.
static_assert(philox4x32({0, 0, 0, 0}, {0, 0}) ==
              Counter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
static_assert(philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
                         {0xffffffff, 0xffffffff}) ==
              Counter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
static_assert(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
                         {0xa4093822, 0x299f31d0}) ==
              Counter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});

int different_bits(const Counter& a, const Counter& b) {
  int bits = 0;
  for (std::size_t i = 0; i < a.size(); ++i) { bits += std::popcount(a.at(i) ^ b.at(i)); }
  return bits;
}

// Flipping one bit changes 64 of the 128 output bits on average; the bounds 34 and 94 are more than
// five standard deviations away.
TEST(Philox, OneBitOfCounterOrKeyChangesAboutHalfOfTheOutput) {
  const Counter counter{1, 2, 3, 4};
  const Key key{5, 6};
  const Counter from = philox4x32(counter, key);
  for (unsigned bit = 0; bit < 128; ++bit) {
    Counter other = counter;
    other.at(bit / 32) ^= 1U << (bit % 32);
    const int changed = different_bits(from, philox4x32(other, key));
    EXPECT_TRUE(changed > 34 && changed < 94) << "counter bit " << bit << ": " << changed;
  }
  for (unsigned bit = 0; bit < 64; ++bit) {
    Key other = key;
    other.at(bit / 32) ^= 1U << (bit % 32);
    const int changed = different_bits(from, philox4x32(counter, other));
    EXPECT_TRUE(changed > 34 && changed < 94) << "key bit " << bit << ": " << changed;
  }
}

}  // namespace
}  // namespace tessera::philox_test
