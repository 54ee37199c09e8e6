#include "engine/plan/whole_units.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "engine/plan/size_classes.hpp"

namespace tessera::engine::whole_units_test {
namespace {

using Units = std::vector<UnitBytes>;

/// The bytes of all units if those of `whole` (a bit each) are whole.
std::size_t cost_of(const Units& units, unsigned whole, int slots) {
  std::size_t bytes = 0;
  std::vector<std::size_t> sizes;
  for (std::size_t u = 0; u < units.size(); ++u) {
    if ((whole >> u & 1U) != 0) {
      bytes += units[u].whole;
    } else {
      bytes += units[u].shard + (units[u].own_slot ? units[u].whole : 0);
      if (!units[u].own_slot) { sizes.push_back(units[u].whole); }
    }
  }
  std::ranges::sort(sizes);
  for (const SizeClass& one : size_classes(sizes, slots)) { bytes += one.bytes(); }
  return bytes;
}

unsigned bits_of(const std::vector<WholeRun>& runs) {
  unsigned bits = 0;
  for (const WholeRun& run : runs) {
    for (const std::size_t u : run.units) { bits |= 1U << u; }
  }
  return bits;
}

Units random_units(std::mt19937& random, std::size_t count, std::size_t ranks) {
  Units units(count);
  const bool few_sizes = random() % 2 == 0;
  for (UnitBytes& unit : units) {
    unit.shard = 128 * (few_sizes ? 1 + random() % 3 : random() % 100);
    unit.whole = unit.shard * ranks;
    unit.own_slot = random() % 5 == 0;
  }
  return units;
}

TEST(WholeUnits, AreTheCheapestChoiceAndEachRunSaves) {
  std::mt19937 random{11};
  for (int round = 0; round < 300; ++round) {
    const std::size_t ranks = 1 + random() % 5;
    const Units units = random_units(random, random() % 9, ranks);
    const int slots = 1 + static_cast<int>(random() % 4);
    std::size_t least = cost_of(units, 0, slots);
    for (unsigned whole = 1; whole < 1U << units.size(); ++whole) {
      least = std::min(least, cost_of(units, whole, slots));
    }
    const std::vector<WholeRun> runs = whole_units(units, slots);
    EXPECT_EQ(cost_of(units, bits_of(runs), slots), least) << "round " << round;
    for (const WholeRun& run : runs) { EXPECT_LT(run.whole_bytes, run.sharded_bytes); }
    if (cost_of(units, 0, slots) == least) { EXPECT_TRUE(runs.empty()); }
  }
}

/// Whether `count` equal units over `ranks` ranks are whole, with two slots.
bool whole_of_equal(std::size_t count, std::size_t ranks) {
  const Units units(count, {.whole = 1280 * ranks, .shard = 1280});
  const std::vector<WholeRun> runs = whole_units(units, 2);
  EXPECT_TRUE(runs.empty() || runs.front().units.size() == count);
  return !runs.empty();
}

TEST(WholeUnits, EqualBlocksAreShardedWhereTheFormulaSaves) {
  EXPECT_TRUE(whole_of_equal(2, 4));
  EXPECT_FALSE(whole_of_equal(3, 4));
  EXPECT_FALSE(whole_of_equal(4, 4));
  EXPECT_TRUE(whole_of_equal(3, 2));
  EXPECT_FALSE(whole_of_equal(4, 2));  // the same either way
  EXPECT_FALSE(whole_of_equal(5, 2));
  EXPECT_TRUE(whole_of_equal(40, 1));  // nothing is sharded over one rank
}

TEST(WholeUnits, RootsAndTheHugeAreWholeAndTheirNumbersAreSaid) {
  const std::vector<WholeRun> runs =
      whole_units(Units{{.whole = 400, .shard = 100, .own_slot = true},
                        {.whole = 128, .shard = 32},
                        {.whole = 12'800, .shard = 3200},
                        {.whole = 128, .shard = 32},
                        {.whole = 128, .shard = 32},
                        {.whole = 128, .shard = 32}},
                  2);
  ASSERT_EQ(runs.size(), 2U);
  EXPECT_EQ(runs[0].units, (std::vector<std::size_t>{0}));
  EXPECT_EQ(runs[0].whole_bytes, 400U);
  EXPECT_EQ(runs[0].sharded_bytes, 500U);
  EXPECT_EQ(runs[1].units, (std::vector<std::size_t>{2}));
  EXPECT_EQ(runs[1].whole_bytes, 12'800U);
  EXPECT_EQ(runs[1].sharded_bytes, 16'000U);
}

TEST(WholeUnits, NothingIsKeptOfUnitsWithoutBytes) {
  EXPECT_TRUE(whole_units(Units{{}, {.own_slot = true}, {}}, 2).empty());
  EXPECT_TRUE(whole_units({}, 2).empty());
}

}  // namespace
}  // namespace tessera::engine::whole_units_test
