// An update on the host, and an update on the device from host memory, give the bits of the plain
// update on the device: under every strategy, in every precision, in any combination.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "support/groups.hpp"
#include "support/toy_model.hpp"

namespace tessera::test::offload_test {
namespace {

constexpr Offload kWays[] = {Offload::optimizer, Offload::state};

ToyRun offloaded(ToyRun run, Offload way, float keep = 0.0F) {
  run.options.offload = way;
  run.options.offload_keep = keep;
  return run;
}

/// The difference that each way of offload makes to `run`; empty if none.
std::string difference_of(const ToyRun& run, const ToyOutcome& expected, float keep = 0.0F) {
  std::string text;
  for (const Offload way : kWays) {
    const std::string found = difference(expected, run_toy(offloaded(run, way, keep)));
    if (!found.empty()) { text += std::string{to_string(way)} + ": " + found; }
  }
  return text;
}

/// Runs `run` under every strategy with and without offload.
void expect_same(ToyRun run, const std::string& what) {
  for (const Strategy strategy : tried_strategies()) {
    run.options.strategy = strategy;
    run.options.shard_group = half_of(run.ranks, strategy);
    EXPECT_EQ(difference_of(run, run_toy(run)), "")
        << to_string(strategy) << " on " << run.ranks << ": " << what;
  }
}

class OffloadOn : public ::testing::TestWithParam<int> {
 protected:
  [[nodiscard]] static ToyRun run(int steps = 6) {
    ToyRun run;
    run.ranks = GetParam();
    run.steps = TESSERA_SANITIZED ? 3 : steps;
    return run;
  }
};
INSTANTIATE_TEST_SUITE_P(Ranks, OffloadOn, ::testing::ValuesIn(tried_ranks({1, 2, 4}, {1, 2})),
                         ::testing::PrintToStringParamName());

TEST_P(OffloadOn, ChangesNoBitInAnyPrecision) {
  for (const DType compute : {DType::fp32, DType::bf16, DType::fp16}) {
    for (const DType gradient : {DType::fp32, DType::bf16}) {
      ToyRun narrow = run();
      narrow.options.compute = compute;
      narrow.options.gradient = gradient;
      expect_same(narrow, std::string{to_string(compute)} + ", gradients " +
                              std::string{to_string(gradient)});
    }
  }
}

TEST_P(OffloadOn, ChangesNoBitWhereMicroBatchesAccumulate) {
  for (const AccumulateMode mode : {AccumulateMode::every, AccumulateMode::deferred}) {
    ToyRun accumulating = run(4);
    accumulating.options.accumulate = 3;
    accumulating.options.accumulate_mode = mode;
    accumulating.options.gradient = DType::bf16;
    expect_same(accumulating, std::string{to_string(mode)});
  }
}

// Data used too early or written too late is poisoned or delayed.
TEST_P(OffloadOn, ChangesNoBitUnderPoisonAndDelays) {
  for (const int accumulate : {1, 2}) {
    ToyRun disturbed = run(5);
    disturbed.options.accumulate = accumulate;
    disturbed.options.accumulate_mode = AccumulateMode::every;
    disturbed.options.compute = accumulate == 1 ? DType::fp32 : DType::bf16;
    disturbed.options.reduce = accumulate == 1 ? DType::fp32 : DType::bf16;
    disturbed.world.testing.poison = SlotPoison::nan;
    disturbed.world.testing.delays =
        DelayInjection{.seed = 7, .longest = std::chrono::microseconds{300}};
    expect_same(disturbed, "delays, accumulate " + std::to_string(accumulate));
  }
}

TEST_P(OffloadOn, ChangesNoBitOfAnyOptimizer) {
  const std::vector<Optimizer> optimizers{Adam{.lr = 0.02F, .weight_decay = 0.1F},
                                          Lion{.lr = 0.003F}, SGD{.lr = 0.1F, .momentum = 0.9F}};
  for (const Optimizer& optimizer : optimizers) {
    ToyRun other = run(4);
    other.optimizer = optimizer;
    other.options.compute = DType::bf16;
    other.optimizer_options.moments = MomentFormat::bf16;
    other.optimizer_options.rounding = Rounding::stochastic;
    other.optimizer_options.groups = {
        {.name = "biases",
         .contains = [](const ParameterInfo& info) { return info.name == "bias"; },
         .lr_scale = 2.0F}};
    expect_same(other, describe(optimizer));
  }
}

TEST_P(OffloadOn, ChangesNoBitOfMomentsOfEightBits) {
  for (const DType compute : {DType::fp32, DType::bf16}) {
    ToyRun quantised = run(4);
    quantised.options.compute = compute;
    quantised.options.align_elems = kMomentBlock;
    quantised.optimizer_options.moments = MomentFormat::int8;
    expect_same(quantised, "int8 moments");
  }
}

TEST_P(OffloadOn, ChangesNoBitOfAnOptimizerOfAUsersOwn) {
  const auto update = [](const ShardUpdate& piece) {
    if (*piece.apply == 0) { return; }
    for (std::size_t i = 0; i < piece.weights.size(); ++i) {
      piece.states[0][i] = 0.9F * piece.states[0][i] + piece.gradient_at(i);
      piece.weights[i] -= piece.lr * piece.states[0][i];
    }
  };
  ToyRun own = run(4);
  own.optimizer = CustomOptimizer{.name = "own", .states = 1, .lr = 0.05F, .update = update};
  own.options.compute = DType::bf16;
  expect_same(own, "an optimizer of the user's own");
}

TEST_P(OffloadOn, ChangesNoBitOfStepsThatAreSkipped) {
  ToyRun spoilt = run(6);
  spoilt.steps = 6;
  spoilt.options.compute = DType::fp16;
  spoilt.options.loss_scaling = {.mode = LossScaleMode::dynamic, .growth_interval = 2};
  spoilt.spoilt = {{.value = HUGE_VALF, .rank = GetParam() - 1, .step = 2}};
  expect_same(spoilt, "a spoilt step");
}

TEST_P(OffloadOn, ChangesNoBitWithAnyGathering) {
  ToyRun gathering = run(4);
  gathering.options.strategy = Strategy::zero3;
  const ToyOutcome expected = run_toy(gathering);
  for (const bool declared : {false, true}) {
    ToyRun other = gathering;
    other.toy.declared_order = declared;
    other.options.prefetch = declared ? 3 : 0;
    EXPECT_EQ(difference_of(other, expected), "") << "declared " << declared;
    other.options.reshard = Reshard::after_backward;
    EXPECT_EQ(difference_of(other, expected), "") << "resharded late " << declared;
    other.options.persist_elems = 1'000'000;
    EXPECT_EQ(difference_of(other, expected), "") << "persisting " << declared;
  }
}

TEST_P(OffloadOn, ChangesNoBitWhereAPartStays) {
  for (const DType compute : {DType::fp32, DType::bf16}) {
    for (const Strategy strategy : tried_strategies()) {
      ToyRun part = run(4);
      part.options.compute = compute;
      part.options.strategy = strategy;
      part.options.shard_group = half_of(part.ranks, strategy);
      const ToyOutcome expected = run_toy(part);
      for (const float keep : {0.4F, 0.8F}) {
        EXPECT_EQ(difference_of(part, expected, keep), "")
            << to_string(strategy) << " keeps " << keep;
      }
    }
  }
}

TEST_P(OffloadOn, ChangesNoBitWithThreads) {
  ToyRun threads = run(4);
  threads.world.threads = 3;
  threads.toy.hidden = 33;
  threads.toy.vocab = 131;
  expect_same(threads, "threads");
}

/// More groups than ranks per group, and fewer.
class OffloadCut : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Groups, OffloadCut, ::testing::Values(2, 3),
                         ::testing::PrintToStringParamName());

TEST_P(OffloadCut, ChangesNoBitInGroupsWhateverIsAccumulatedAndQuantised) {
  for (const AccumulateMode mode : {AccumulateMode::every, AccumulateMode::deferred}) {
    for (const MomentFormat moments : {MomentFormat::fp32, MomentFormat::int8}) {
      for (const DType narrow : {DType::fp32, DType::bf16}) {
        ToyRun run;
        run.ranks = 6;
        run.steps = 3;
        run.options.strategy = Strategy::hybrid;
        run.options.shard_group = GetParam();
        run.options.accumulate = 2;
        run.options.accumulate_mode = mode;
        run.options.compute = narrow;
        run.options.reduce = narrow;
        run.optimizer_options.moments = moments;
        if (moments == MomentFormat::int8) { run.options.align_elems = kMomentBlock; }
        const ToyOutcome expected = run_toy(run);
        for (const float keep : {0.0F, 0.5F}) {
          EXPECT_EQ(difference_of(run, expected, keep), "")
              << to_string(mode) << ", " << to_string(moments) << " moments, " << to_string(narrow)
              << ", keeps " << keep;
        }
      }
    }
  }
}

// A norm's spans are added in the order of units, though the last unit's arrive first.
TEST(Offload, NormsOfManySpansAreTheSameToTheBit) {
  ToyRun large;
  large.steps = 2;
  large.toy.blocks = 2;
  large.toy.batch = 1;
  large.toy.hidden = 600;  // a block has two spans and part of a third
  large.options.strategy = Strategy::zero3;
  EXPECT_EQ(difference(run_toy(large), run_toy(offloaded(large, Offload::optimizer))), "");
}

TEST_P(OffloadOn, OfTheStateChangesNoBitOfRemainders) {
  ToyRun halves = run(4);
  halves.options.compute = DType::bf16;
  halves.toy.small_dtype = DType::fp32;
  halves.options.master_weights = MasterWeights::remainder;
  for (const Strategy strategy : tried_strategies()) {
    halves.options.strategy = strategy;
    halves.options.shard_group = half_of(halves.ranks, strategy);
    EXPECT_EQ(difference(run_toy(halves), run_toy(offloaded(halves, Offload::state))), "")
        << to_string(strategy);
  }
}

// A unit's state has several pieces, one of them with parts of several runs.
TEST(Offload, StateInSeveralPiecesIsTheSameToTheBit) {
  for (const MomentFormat moments : {MomentFormat::fp32, MomentFormat::bf16, MomentFormat::int8}) {
    ToyRun large;
    large.steps = 2;
    large.toy.blocks = 2;
    large.toy.batch = 1;
    large.toy.hidden = 1100;  // more than 2^20 elements
    large.options.strategy = Strategy::zero1;
    large.options.compute = moments == MomentFormat::fp32 ? DType::fp32 : DType::bf16;
    large.options.align_elems = kMomentBlock;
    large.world.testing.poison = SlotPoison::nan;
    large.optimizer_options.moments = moments;
    if (moments == MomentFormat::bf16) { large.optimizer_options.rounding = Rounding::stochastic; }
    EXPECT_EQ(difference(run_toy(large), run_toy(offloaded(large, Offload::state))), "")
        << to_string(moments);
  }
}

}  // namespace
}  // namespace tessera::test::offload_test
