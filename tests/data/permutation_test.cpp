#include "data/permutation.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace tessera::permutation_test {
namespace {

// Two entries in one place leave another place empty, so checking for shared places is enough.
bool is_permutation(std::int64_t size, std::uint64_t seed, std::uint64_t stream) {
  const data::Permutation permutation{size, seed, stream};
  std::vector<char> seen(static_cast<std::size_t>(size), 0);
  for (std::int64_t i = 0; i < size; ++i) {
    const std::int64_t place = permutation(i);
    if (place < 0 || place >= size || seen[static_cast<std::size_t>(place)] != 0) { return false; }
    seen[static_cast<std::size_t>(place)] = 1;
  }
  return true;
}

TEST(Permutation, SendsEveryEntryToItsOwnPlace) {
  for (std::int64_t size = 1; size <= 600; ++size) {
    for (std::uint64_t seed = 0; seed < 3; ++seed) {
      for (std::uint64_t stream = 0; stream < 3; ++stream) {
        ASSERT_TRUE(is_permutation(size, seed, stream))
            << size << " entries, seed " << seed << ", stream " << stream;
      }
    }
  }
}

TEST(Permutation, SendsEveryEntryToItsOwnPlaceAroundPowersOfFour) {
  for (const std::int64_t power : {1024, 4096, 16384, 65536}) {
    for (std::int64_t size = power - 1; size <= power + 1; ++size) {
      ASSERT_TRUE(is_permutation(size, 1, 0)) << size;
    }
  }
}

TEST(Permutation, StaysInsideTheLargestSizes) {
  for (const std::int64_t size : {(std::int64_t{1} << 32) + 1, std::int64_t{INT64_MAX}}) {
    const data::Permutation permutation{size, 5, 6};
    for (const std::int64_t index : {std::int64_t{0}, size / 2, size - 1}) {
      EXPECT_GE(permutation(index), 0);
      EXPECT_LT(permutation(index), size);
    }
  }
}

// In 4,000 orders of 10 entries, each entry is in each place about 400 times, with a standard
// deviation of 19. The bound for all 100 counts is 5.5 standard deviations.
TEST(Permutation, EntriesAreInEveryPlaceEquallyOften) {
  constexpr int kOrders = 4000;
  int counts[10][10] = {};
  for (std::uint64_t stream = 0; stream < kOrders; ++stream) {
    const data::Permutation permutation{10, 1, stream};
    for (std::int64_t i = 0; i < 10; ++i) { ++counts[i][permutation(i)]; }
  }
  for (const auto& entry : counts) {
    for (const int count : entry) { EXPECT_NEAR(count, 0.1 * kOrders, 105); }
  }
}

// A random order of n entries keeps about one entry in its place and about one pair of neighbours.
TEST(Permutation, NeighboursArePulledApart) {
  constexpr std::int64_t kSize = 10'000;
  const data::Permutation permutation{kSize, 1, 0};
  int in_place = 0;
  int neighbours = 0;
  for (std::int64_t i = 0; i < kSize; ++i) {
    in_place += permutation(i) == i ? 1 : 0;
    neighbours += i > 0 && permutation(i) == permutation(i - 1) + 1 ? 1 : 0;
  }
  EXPECT_LT(in_place, 10);
  EXPECT_LT(neighbours, 10);
}

}  // namespace
}  // namespace tessera::permutation_test
