#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/tessera.hpp"

// What is kept whole, in which memory, and how it is said.
namespace tessera::test::keep_whole_test {
namespace {

using ::testing::ElementsAre;

constexpr std::int64_t kMiB = 1 << 18;  // elements in fp32

struct Declared {
  std::vector<std::int64_t> blocks = {};  // elements
  std::int64_t root = 0;
};

struct Planned {
  std::vector<std::string> notes;
  std::vector<WholeUnits> whole;
  ModelStateBytes state;
  std::size_t slots = 0;
};

Planned planned(int ranks, const Declared& declared, const ModelOptions& options) {
  Planned planned;
  const auto kinds = plan({.ranks = ranks}, [&](World& world) {
    ShardedModel model{world, options};
    if (declared.root > 0) {
      (void)model.add_unit("(root)", {{"w", {declared.root}}}, {.kind = UnitKind::root});
    }
    for (std::size_t b = 0; b < declared.blocks.size(); ++b) {
      (void)model.add_unit("b" + std::to_string(b), {{"w", {declared.blocks[b]}}});
    }
    EXPECT_TRUE(model.whole_units().empty());
    model.materialize(init::constant(0.0F));
    if (options.purpose == Purpose::training) { model.optimize_with(AdamW{}); }
    const CategoryBytes live = world.memory().report().live;
    planned = {{},
               model.whole_units(),
               model.state_bytes(),
               live[Category::gather] + live[Category::reduce]};
  });
  planned.notes = kinds.front().notes;
  return planned;
}

const ModelOptions kZero3{.strategy = Strategy::zero3, .keep_whole = KeepWhole::where_smaller};

TEST(KeepWhole, AModelOfOneRootIsWholeAndThePlanSaysSo) {
  const Planned plan = planned(4, {.root = 10 * kMiB}, kZero3);
  EXPECT_THAT(
      plan.notes,
      ElementsAre("unit (root) is kept whole: 10.0 MiB whole, 12.5 MiB sharded and gathered",
                  "the gradients of unit (root) are kept whole: 10.0 MiB whole, 12.5 MiB in slots "
                  "and sharded"));
  EXPECT_EQ(plan.slots, 0U);
  EXPECT_EQ(plan.state, (ModelStateBytes{10U << 20, 10U << 20, 5U << 20}));
  const Planned sharded = planned(4, {.root = 10 * kMiB}, {.strategy = Strategy::zero3});
  EXPECT_THAT(sharded.notes, ElementsAre());
  EXPECT_EQ(sharded.slots, 20U << 20);
}

TEST(KeepWhole, SimilarBlocksFollowTheFormulaOfZero3) {
  for (const std::size_t count : {4U, 6U, 24U}) {
    const std::vector<std::int64_t> blocks(count, kMiB);
    const Planned plan = planned(4, {.blocks = blocks, .root = kMiB}, kZero3);
    EXPECT_EQ(plan.whole.size(), 2U);  // the root's parameters and gradients
    EXPECT_EQ(plan.slots, 4U << 20);
    const std::size_t p = count << 20;
    EXPECT_EQ(plan.state,
              (ModelStateBytes{p / 4 + kMiB * 4, p / 4 + kMiB * 4, (p + kMiB * 4) / 2}));
  }
}

TEST(KeepWhole, NeverTakesMoreThanDdp) {
  std::uint64_t random = 12345;
  const auto next = [&random](std::uint64_t below) {
    random = random * 6364136223846793005U + 1442695040888963407U;
    return (random >> 33) % below;
  };
  for (int round = 0; round < 60; ++round) {
    Declared declared{.root = static_cast<std::int64_t>(next(3) * next(5000))};
    const std::size_t count = 1 + next(9);
    for (std::size_t b = 0; b < count; ++b) {
      declared.blocks.push_back(1 + static_cast<std::int64_t>(next(round % 2 == 0 ? 200 : 9000)));
    }
    const int ranks = 1 + static_cast<int>(next(8));
    const auto held = [&](const ModelOptions& options) {
      const Planned plan = planned(ranks, declared, options);
      return std::pair{plan.state.parameters + plan.state.gradients + plan.slots, plan};
    };
    const std::size_t ddp = held({.strategy = Strategy::ddp}).first;
    for (const Strategy strategy : {Strategy::zero2, Strategy::zero3}) {
      ModelOptions options = kZero3;
      options.strategy = strategy;
      options.prefetch = strategy == Strategy::zero3 ? static_cast<int>(next(4)) : 1;
      const auto [bytes, plan] = held(options);
      EXPECT_LE(bytes, ddp) << "round " << round << ", " << to_string(strategy);
      options.keep_whole = KeepWhole::never;
      const std::size_t sharded = held(options).first;
      std::size_t saved = 0;
      for (const WholeUnits& whole : plan.whole) {
        saved += whole.sharded_bytes - whole.whole_bytes;
      }
      EXPECT_LE(bytes, sharded);
      if (!plan.whole.empty()) { EXPECT_LT(bytes, sharded); }
      EXPECT_GE(saved, plan.whole.size());
    }
  }
}

TEST(KeepWhole, GradientsOfSeveralMicroBatchesAndOffloadedOnesStayInSlots) {
  ModelOptions options = kZero3;
  options.accumulate = 2;
  EXPECT_THAT(planned(2, {.root = kMiB}, options).notes,
              ElementsAre("unit (root) is kept whole: 1.00 MiB whole, 1.50 MiB sharded and "
                          "gathered"));
  options.accumulate = 1;
  options.offload = Offload::optimizer;
  EXPECT_EQ(planned(2, {.root = kMiB}, options).notes.size(), 1U);
}

TEST(KeepWhole, AppliesToInferenceAndNowhereWhereNothingIsSharded) {
  ModelOptions options = kZero3;
  options.purpose = Purpose::inference;
  EXPECT_EQ(planned(2, {.root = kMiB}, options).notes.size(), 1U);
  for (const Strategy strategy : {Strategy::dp, Strategy::ddp, Strategy::zero1}) {
    options = kZero3;
    options.strategy = strategy;
    EXPECT_THAT(planned(2, {.root = kMiB}, options).notes, ElementsAre()) << to_string(strategy);
  }
}

TEST(KeepWhole, RunsAreNamedTogether) {
  EXPECT_EQ(describe({StateTensor::parameters, {"a", "b"}, 2 << 20, 3 << 20}),
            "units a, b are kept whole: 2.00 MiB whole, 3.00 MiB sharded and gathered");
}

}  // namespace
}  // namespace tessera::test::keep_whole_test
