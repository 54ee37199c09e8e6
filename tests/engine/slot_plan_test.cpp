#include "engine/plan/slot_plan.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>
#include <span>

#include "engine/plan/size_classes.hpp"

namespace tessera::engine::slot_plan_test {
namespace {

using Sizes = std::vector<std::size_t>;

/// Bytes and number of the rings of a division.
using Cost = std::pair<std::size_t, std::size_t>;

Cost cost_of(std::span<const SizeClass> classes) {
  std::size_t bytes = 0;
  for (const SizeClass& one : classes) { bytes += one.bytes(); }
  return {bytes, classes.size()};
}

/// The cost of a division into groups, in any order.
Cost cost_of(const std::vector<Sizes>& groups, std::size_t slots) {
  std::size_t bytes = 0;
  for (const Sizes& group : groups) {
    bytes += std::min(group.size(), slots) * Arena::need(std::ranges::max(group));
  }
  return {bytes, groups.size()};
}

/// The least cost over all divisions of `sizes` from index `at` on, added to `groups`.
Cost least_cost(const Sizes& sizes, std::size_t slots, std::size_t at, std::vector<Sizes>& groups) {
  if (at == sizes.size()) { return cost_of(groups, slots); }
  Cost least{std::numeric_limits<std::size_t>::max(), 0};
  for (std::size_t g = 0; g < groups.size(); ++g) {
    groups[g].push_back(sizes[at]);
    least = std::min(least, least_cost(sizes, slots, at + 1, groups));
    groups[g].pop_back();
  }
  groups.push_back({sizes[at]});
  least = std::min(least, least_cost(sizes, slots, at + 1, groups));
  groups.pop_back();
  return least;
}

Sizes random_sizes(std::mt19937& random, std::size_t count, std::size_t most) {
  Sizes sizes(count);
  std::ranges::generate(sizes, [&] { return random() % (most + 1); });
  std::ranges::sort(sizes);
  return sizes;
}

TEST(SizeClasses, AreTheCheapestOfAllDivisionsAndTheFewestOfThose) {
  std::mt19937 random{7};
  for (int round = 0; round < 400; ++round) {
    const Sizes sizes = random_sizes(random, random() % 8, round % 2 == 0 ? 6 * 128 : 100'000);
    const int slots = 1 + static_cast<int>(random() % 4);
    std::vector<Sizes> groups;
    const Cost least = least_cost(sizes, static_cast<std::size_t>(slots), 0, groups);
    EXPECT_EQ(cost_of(size_classes(sizes, slots)), least) << "round " << round;
  }
}

TEST(SizeClasses, CoverEverySizeAndCostAtMostOneRing) {
  std::mt19937 random{8};
  for (int round = 0; round < 200; ++round) {
    const Sizes sizes = random_sizes(random, 1 + random() % 120, 1 << (4 + round % 20));
    const int slots = 1 + static_cast<int>(random() % 9);
    std::size_t at = 0;
    const std::vector<SizeClass> classes = size_classes(sizes, slots);
    for (const SizeClass& one : classes) {
      ASSERT_EQ(one.first, at);
      ASSERT_EQ(one.slots, std::min<int>(static_cast<int>(one.count), slots));
      ASSERT_GE(one.slot_bytes, sizes[one.first + one.count - 1]);
      at += one.count;
    }
    ASSERT_EQ(at, sizes.size());
    EXPECT_LE(cost_of(classes), cost_of({sizes}, static_cast<std::size_t>(slots)));
  }
}

UnitPlans units_of(const std::vector<std::int64_t>& elems, const std::vector<std::size_t>& roots) {
  UnitPlans plans;
  for (std::size_t u = 0; u < elems.size(); ++u) {
    const bool root = std::ranges::find(roots, u) != roots.end();
    plans.push_back({"u" + std::to_string(u),
                     UnitLayout::make({{"w", {elems[u]}}}, {}, /*ranks=*/2),
                     {.kind = root ? UnitKind::root : UnitKind::block}});
  }
  return plans;
}

SlotPlan::MostAtOnce at_most(int slots) {
  return [=](const SlotPlan::Among&) { return slots; };
}

std::vector<std::pair<int, std::size_t>> rings_of(const SlotPlan& plan) {
  std::vector<std::pair<int, std::size_t>> rings;
  for (const SlotPlan::Ring& ring : plan.rings) { rings.emplace_back(ring.slots, ring.slot_bytes); }
  return rings;
}

using Rings = std::vector<std::pair<int, std::size_t>>;

TEST(SlotPlan, EqualUnitsShareOneRingAndRootsHaveTheirOwn) {
  const SlotPlan plan = SlotPlan::make(units_of({1024, 512, 512, 512, 64}, {0, 4}), at_most(2),
                                       &UnitPlan::parameter_bytes);
  EXPECT_EQ(rings_of(plan), (Rings{{2, 2048}, {1, 4096}, {1, 512}}));
  EXPECT_EQ(plan.ring_of_unit, (std::vector<std::size_t>{1, 0, 0, 0, 2}));
  EXPECT_EQ(plan.bytes(), 2U * 2048 + 4096 + 512);
}

TEST(SlotPlan, OneHugeUnitDoesNotSizeTheSlotsOfTheOthers) {
  const SlotPlan plan =
      SlotPlan::make(units_of({512, 100'096, 512, 512}, {}), at_most(3), &UnitPlan::gradient_bytes);
  EXPECT_EQ(rings_of(plan), (Rings{{3, 2048}, {1, 400'384}}));
  EXPECT_EQ(plan.ring_of_unit, (std::vector<std::size_t>{0, 1, 0, 0}));
}

TEST(SlotPlan, ARingHasNoMoreSlotsThanItsOwnUnitsNeedAtOnce) {
  // Three units at once, but only one of the small ones.
  const auto most = [](const SlotPlan::Among& among) {
    return 2 * (among(3) || among(4) ? 1 : 0) + (among(0) ? 1 : 0);
  };
  const SlotPlan plan = SlotPlan::make(units_of({128, 128, 128, 12'800, 12'800, 12'800}, {}), most,
                                       &UnitPlan::parameter_bytes);
  EXPECT_EQ(rings_of(plan), (Rings{{3, 51'200}}));  // 3 + 3 small ones would take more
  const SlotPlan rest = SlotPlan::make(units_of({128, 128, 128, 12'800, 12'800}, {}), most,
                                       &UnitPlan::parameter_bytes);
  EXPECT_EQ(rings_of(rest), (Rings{{1, 512}, {2, 51'200}}));
}

TEST(SlotPlan, NoUnitsNeedNoSlots) {
  EXPECT_EQ(SlotPlan::make(units_of({64}, {0}), at_most(2), &UnitPlan::parameter_bytes).bytes(),
            Arena::need(512));
  EXPECT_TRUE(SlotPlan::make({}, at_most(2), &UnitPlan::parameter_bytes).rings.empty());
}

}  // namespace
}  // namespace tessera::engine::slot_plan_test
