#include "comm/control/tcp/call_ledger.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace tessera::test::call_ledger_test {
namespace {

using ::testing::ElementsAre;
using Hashes = std::vector<std::uint64_t>;

TEST(CallLedger, KnowsWhichRanksHaveNotIssuedACall) {
  comm::CallLedger ledger{3};
  EXPECT_THAT(ledger.missing(0), ElementsAre(0, 1, 2));
  EXPECT_TRUE(ledger.add(1, 0, Hashes{7, 8}));
  EXPECT_TRUE(ledger.add(0, 0, Hashes{7}));
  EXPECT_THAT(ledger.missing(0), ElementsAre(2));
  EXPECT_THAT(ledger.missing(1), ElementsAre(0, 2));
  EXPECT_EQ(ledger.issued(1), 2U);
  EXPECT_FALSE(ledger.difference());
}

TEST(CallLedger, RefusesCallsOutOfOrder) {
  comm::CallLedger ledger{2};
  EXPECT_FALSE(ledger.add(0, 1, Hashes{7}));
  EXPECT_TRUE(ledger.add(0, 0, Hashes{7}));
  EXPECT_FALSE(ledger.add(0, 0, Hashes{7}));
}

// Calls arrive piece by piece and in any order of ranks.
TEST(CallLedger, FindsTheFirstDifferenceInAnyOrderOfArrival) {
  for (std::uint32_t seed = 0; seed < 200; ++seed) {
    std::mt19937 random{seed};
    const std::size_t ranks = 2 + random() % 4;
    const std::size_t calls = 1 + random() % 40;
    std::vector<Hashes> issued(ranks, Hashes(calls));
    for (Hashes& hashes : issued) {
      for (std::size_t i = 0; i < calls; ++i) { hashes[i] = i * i; }
    }
    std::optional<std::uint64_t> expected;
    if (seed % 4 != 0) {
      const std::size_t at = random() % calls;
      for (std::size_t i = at; i < calls; ++i) { issued[random() % ranks][i] += 1000 + i; }
      for (std::size_t i = 0; i < calls && !expected; ++i) {
        for (const Hashes& hashes : issued) {
          if (hashes[i] != issued[0][i]) { expected = i; }
        }
      }
    }
    comm::CallLedger ledger{static_cast<int>(ranks)};
    std::vector<std::size_t> next(ranks, 0);
    while (std::ranges::any_of(next, [&](std::size_t n) { return n < calls; })) {
      const std::size_t rank = random() % ranks;
      const std::size_t count = std::min<std::size_t>(random() % 5, calls - next[rank]);
      const std::span<const std::uint64_t> piece{issued[rank].data() + next[rank], count};
      ASSERT_TRUE(ledger.add(static_cast<int>(rank), next[rank], piece));
      next[rank] += count;
    }
    EXPECT_EQ(ledger.difference(), expected) << "seed " << seed;
  }
}

}  // namespace
}  // namespace tessera::test::call_ledger_test
