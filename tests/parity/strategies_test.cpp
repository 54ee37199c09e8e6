#include <gtest/gtest.h>

#include <cmath>

#include "support/groups.hpp"
#include "support/rounding.hpp"
#include "support/toy_model.hpp"

namespace tessera::test::strategies_test {
namespace {

class Parity : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Parity, ::testing::ValuesIn(tried_ranks({1, 2, 3, 4, 8}, {1, 3})),
                         ::testing::PrintToStringParamName());

ToyRun run_of(int ranks, Strategy strategy) {
  ToyRun run;
  run.ranks = ranks;
  run.options.strategy = strategy;
  run.options.shard_group = groups_of_one(strategy);
  return run;
}

/// Runs `base` under every strategy and compares with ddp bit by bit.
void expect_every_strategy_agrees(const ToyRun& base) {
  ToyRun run = base;
  run.options.strategy = Strategy::ddp;
  const ToyOutcome expected = run_toy(run);
  ASSERT_EQ(std::ssize(expected.losses), base.steps);
  EXPECT_LT(expected.losses.back(), expected.losses.front());
  for (const Strategy strategy : tried_strategies()) {
    run.options.strategy = strategy;
    run.options.shard_group = groups_of_one(strategy);
    EXPECT_EQ(difference(expected, run_toy(run)), "") << to_string(strategy);
  }
}

TEST_P(Parity, FiftyStepsWithClippingAreBitIdenticalUnderEveryStrategy) {
  ToyRun run;
  run.ranks = GetParam();
  run.steps = TESSERA_SANITIZED ? 15 : 50;
  run.toy.batch = 2;
  run.options.strategy = Strategy::ddp;
  EXPECT_TRUE(run_toy(run).clipped);
  expect_every_strategy_agrees(run);
}

TEST_P(Parity, SgdWithMomentumIsBitIdenticalUnderEveryStrategy) {
  ToyRun run;
  run.ranks = GetParam();
  run.optimizer = SGD{.lr = 0.2F, .momentum = 0.9F, .weight_decay = 0.01F};
  run.clip_norm = 0.0F;
  expect_every_strategy_agrees(run);
}

// Shards differ, and so does the order in which a norm's squares are added: no clipping.
TEST_P(Parity, RoomBehindAParameterChangesNoBit) {
  for (const std::int64_t align : {std::int64_t{64}, std::int64_t{256}}) {
    ToyRun run;
    run.ranks = GetParam();
    run.clip_norm = 0.0F;
    run.options.align_elems = align;
    run.optimizer_options.moments = align == 256 ? MomentFormat::int8 : MomentFormat::fp32;
    ToyOutcome expected = run_toy(run);
    run.toy.room = 450;
    for (const Strategy strategy : tried_strategies()) {
      run.options.strategy = strategy;
      run.options.shard_group = groups_of_one(strategy);
      ToyOutcome outcome = run_toy(run);
      expected.norms = outcome.norms = {};
      EXPECT_EQ(difference(expected, outcome), "") << to_string(strategy) << " align " << align;
    }
  }
}

TEST_P(Parity, BothAccumulateModesAreBitIdenticalUnderEveryStrategy) {
  for (const AccumulateMode mode : {AccumulateMode::every, AccumulateMode::deferred}) {
    SCOPED_TRACE(to_string(mode));
    ToyRun run;
    run.ranks = GetParam();
    run.options.accumulate = 3;
    run.options.accumulate_mode = mode;
    expect_every_strategy_agrees(run);
  }
}

TEST_P(Parity, GradientsRoundedOnTheWireAreBitIdenticalUnderEveryStrategy) {
  for (const int accumulate : {1, 2}) {
    ToyRun run;
    run.ranks = GetParam();
    run.options.accumulate = accumulate;
    run.options.reduce = DType::bf16;
    run.options.accumulate_mode = AccumulateMode::every;
    expect_every_strategy_agrees(run);
    const ToyOutcome rounded = run_toy(run);
    run.options.reduce = DType::fp32;
    const ToyOutcome exact = run_toy(run);
    EXPECT_NE(difference(exact, rounded), "") << "nothing was rounded";
    // A gradient is rounded before it is sent, and the ranks' sum in fp32 once more.
    const double bound = 2 * unit_roundoff(DType::bf16);
    EXPECT_NEAR(rounded.norms.front(), exact.norms.front(), bound * exact.norms.front());
    EXPECT_NEAR(rounded.losses.back(), exact.losses.back(), bound * exact.losses.front());
  }
}

TEST_P(Parity, PrefetchDepthAndDeclaredOrderChangeNoBit) {
  const ToyOutcome expected = run_toy(run_of(GetParam(), Strategy::zero3));
  for (const int prefetch : {0, 1, 2, 5}) {
    for (const bool declared : {false, true}) {
      ToyRun run = run_of(GetParam(), Strategy::zero3);
      run.options.prefetch = prefetch;
      run.toy.declared_order = declared;
      EXPECT_EQ(difference(expected, run_toy(run)), "")
          << "prefetch " << prefetch << " declared " << declared;
    }
  }
}

TEST_P(Parity, BucketSizeChangesNoBit) {
  const ToyOutcome expected = run_toy(run_of(GetParam(), Strategy::ddp));
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{600}, std::size_t{1} << 30}) {
    ToyRun run = run_of(GetParam(), Strategy::ddp);
    run.options.tuning.first_bucket_bytes = bytes;
    run.options.bucket_bytes = bytes;
    EXPECT_EQ(difference(expected, run_toy(run)), "") << bytes;
  }
}

// Without delays an early reuse of a buffer rarely shows: poison freed memory and add delays.
TEST_P(Parity, PoisonedSlotsAndDelayedCollectivesChangeNoBit) {
  for (const int accumulate : {1, 2}) {
    ToyRun run;
    run.ranks = GetParam();
    run.steps = 6;
    run.options.accumulate = accumulate;
    run.options.accumulate_mode = AccumulateMode::every;
    run.options.strategy = Strategy::ddp;
    const ToyOutcome expected = run_toy(run);
    for (const Strategy strategy : tried_strategies()) {
      for (const std::uint64_t seed : {1U, 2U, 3U}) {
        run.options.strategy = strategy;
        run.options.shard_group = groups_of_one(strategy);
        run.world.testing.poison = SlotPoison::nan;
        run.world.testing.delays =
            DelayInjection{.seed = seed, .longest = std::chrono::microseconds{400}};
        EXPECT_EQ(difference(expected, run_toy(run)), "")
            << to_string(strategy) << " accumulate " << accumulate << " seed " << seed;
      }
    }
    run.world = {};
  }
}

// A table tied across two units is one tensor with one gradient, counted once in the norm.
TEST_P(Parity, ATableTiedAcrossUnitsTrainsAsOneThatOneUnitUsesTwice) {
  ToyRun run = run_of(GetParam(), Strategy::zero3);
  run.toy.tied_head = false;
  expect_every_strategy_agrees(run);
  const ToyOutcome shared = run_toy(run);
  run.toy.tied_head = true;
  run.toy.head_bias = false;
  for (const Strategy strategy : tried_strategies()) {
    run.options.strategy = strategy;
    run.options.shard_group = groups_of_one(strategy);
    EXPECT_EQ(difference(shared, run_toy(run)), "") << to_string(strategy);
  }
}

double relative_error(const std::vector<float>& a, const std::vector<float>& b) {
  double square = 0.0;
  double error = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    square += static_cast<double>(a[i]) * a[i];
    error += (static_cast<double>(a[i]) - b[i]) * (static_cast<double>(a[i]) - b[i]);
  }
  return error == 0.0 ? 0.0 : std::sqrt(error / square);
}

void expect_close(const ToyOutcome& a, const ToyOutcome& b, const ToyBounds& within) {
  ASSERT_EQ(a.losses.size(), b.losses.size());
  for (std::size_t i = 0; i < a.losses.size(); ++i) {
    EXPECT_NEAR(a.losses[i], b.losses[i], within.loss * a.losses.front()) << "step " << i;
  }
  EXPECT_NEAR(a.norms.front(), b.norms.front(), within.gradient * a.norms.front());
  for (const auto& [name, gradient] : a.first_gradients) {
    EXPECT_LT(relative_error(gradient, b.first_gradients.at(name)), within.gradient) << name;
  }
}

TEST(ParityAcrossShapesOfTheBatch, FourRanksOfTwoEqualOneRankOfEight) {
  ToyRun one;
  one.toy.batch = 8;
  one.steps = 50;
  one.optimizer = AdamW{.lr = 0.003F};
  ToyRun four = one;
  four.ranks = 4;
  four.toy.batch = 2;
  four.options.strategy = Strategy::zero3;
  expect_close(run_toy(one), run_toy(four), between_orders(four));
}

TEST(ParityAcrossShapesOfTheBatch, FourMicroBatchesOfTwoEqualOneOfEight) {
  for (const AccumulateMode mode : {AccumulateMode::every, AccumulateMode::deferred}) {
    ToyRun one;
    one.toy.batch = 8;
    one.steps = 50;
    one.optimizer = AdamW{.lr = 0.003F};
    ToyRun four = one;
    four.toy.batch = 2;
    four.options.accumulate = 4;
    four.options.accumulate_mode = mode;
    four.options.strategy = Strategy::zero2;
    expect_close(run_toy(one), run_toy(four), between_orders(four));
  }
}

}  // namespace
}  // namespace tessera::test::strategies_test
