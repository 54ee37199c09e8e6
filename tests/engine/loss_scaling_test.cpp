#include "tessera/engine/loss_scaling.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "support/toy_model.hpp"
#include "tessera/world/run.hpp"
#include "tessera/world/simulate.hpp"

namespace tessera::test::loss_scaling_test {
namespace {

using ::testing::HasSubstr;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::string refusal(const LossScaling& scaling, DType compute = DType::fp32,
                    DType gradient = DType::fp32) {
  try {
    validate(scaling, compute, gradient);
  } catch (const ConfigError& error) { return error.what(); }
  return {};
}

TEST(LossScaling, IsDynamicWhereFp16ComputesOrHoldsGradientsAndOffForTheOthers) {
  constexpr DType all[] = {DType::fp32, DType::bf16, DType::fp16};
  for (const DType compute : all) {
    for (const DType gradient : all) {
      const bool scales = compute == DType::fp16 || gradient == DType::fp16;
      EXPECT_EQ(resolve(LossScaleMode::automatic, compute, gradient),
                scales ? LossScaleMode::dynamic : LossScaleMode::off)
          << to_string(compute) << " " << to_string(gradient);
      EXPECT_EQ(first_loss_scale({}, compute, gradient), scales ? 65'536.0F : 1.0F);
      EXPECT_EQ(resolve(LossScaleMode::off, compute, gradient), LossScaleMode::off);
    }
  }
  const LossScaling fixed{.mode = LossScaleMode::fixed, .initial = 3.0F};
  EXPECT_EQ(first_loss_scale(fixed, DType::fp32, DType::fp32), 3.0F);
}

TEST(LossScaling, InvalidNumbersAreNamed) {
  constexpr auto dynamic = LossScaleMode::dynamic;
  for (const float bad : {0.0F, -1.0F, 2 * LossScaling::kMost, kInfinity, kNan}) {
    EXPECT_THAT(refusal({.mode = dynamic, .initial = bad}), HasSubstr("initial")) << bad;
    EXPECT_THAT(refusal({.mode = LossScaleMode::fixed, .initial = bad}), HasSubstr("initial"));
    EXPECT_THAT(refusal({.initial = bad}, DType::fp16), HasSubstr("initial"));
    EXPECT_THAT(refusal({.initial = bad}, DType::fp32, DType::fp16), HasSubstr("initial"));
  }
  for (const float bad : {1.0F, 0.5F, kInfinity, kNan}) {
    EXPECT_THAT(refusal({.mode = dynamic, .growth = bad}), HasSubstr("growth")) << bad;
  }
  for (const float bad : {1.0F, 0.0F, -0.5F, kNan}) {
    EXPECT_THAT(refusal({.mode = dynamic, .backoff = bad}), HasSubstr("backoff")) << bad;
  }
  EXPECT_THAT(refusal({.mode = dynamic, .growth_interval = 0}), HasSubstr("growth_interval"));
  for (const float bad : {0.0F, 65'537.0F, kNan}) {
    EXPECT_THAT(refusal({.mode = dynamic, .minimum = bad}), HasSubstr("minimum")) << bad;
  }
  EXPECT_EQ(refusal({.mode = dynamic}), "");
  EXPECT_EQ(refusal({.mode = dynamic, .initial = LossScaling::kMost}), "");
  EXPECT_EQ(refusal({.mode = LossScaleMode::off, .initial = kNan}), "") << "not used";
  run_ranks(1, [](World& world) {
    EXPECT_THROW(ShardedModel(world, {.loss_scaling = {.mode = dynamic, .growth = 1.0F}}),
                 ConfigError);
    EXPECT_THROW(ShardedModel(world, {.max_skips = -1}), ConfigError);
  });
}

TEST(LossScaling, RanksWithDifferentScalingAreRefused) {
  const auto body = [](World& world) {
    ShardedModel model{world,
                       {.loss_scaling = {.mode = LossScaleMode::fixed,
                                         .initial = world.rank() == 1 ? 8.0F : 4.0F}}};
    (void)model.add_unit("a", {{"w", {3}}});
    model.materialize(init::constant(1.0F));
  };
  try {
    run_ranks(2, body);
    ADD_FAILURE() << "accepted";
  } catch (const ContractError& error) { EXPECT_THAT(error.what(), HasSubstr("fixed at 8")); }
}

/// The scales that the toy's steps used; `bad` of them have an infinite gradient.
std::vector<float> scales_of(const LossScaling& scaling, int steps, const std::vector<int>& bad) {
  ToyRun run;
  run.ranks = 2;
  run.steps = steps;
  run.options.strategy = Strategy::zero3;
  run.options.loss_scaling = scaling;
  for (const int step : bad) {
    run.spoilt.push_back({.value = kInfinity, .rank = 1, .step = step});
  }
  return run_toy(run).loss_scales;
}

TEST(LossScaling, GrowsAfterTheGivenNumberOfGoodSteps) {
  const LossScaling scaling{
      .mode = LossScaleMode::dynamic, .initial = 4.0F, .growth = 4.0F, .growth_interval = 3};
  EXPECT_EQ(scales_of(scaling, 8, {}), (std::vector<float>{4, 4, 4, 16, 16, 16, 64, 64}));
  EXPECT_EQ(scales_of(scaling, 8, {2}), (std::vector<float>{4, 4, 4, 2, 2, 2, 8, 8}))
      << "a skipped step begins the count again";
}

TEST(LossScaling, NeverFallsBelowTheMinimumNorGrowsBeyondTwoToThe24) {
  const LossScaling low{.mode = LossScaleMode::dynamic, .initial = 8.0F, .minimum = 3.0F};
  EXPECT_EQ(scales_of(low, 5, {0, 1, 2, 3}), (std::vector<float>{8, 4, 3, 3, 3}));
  const LossScaling high{
      .mode = LossScaleMode::dynamic, .initial = LossScaling::kMost / 2, .growth_interval = 1};
  EXPECT_EQ(scales_of(high, 4, {}),
            (std::vector<float>{8'388'608, 16'777'216, 16'777'216, 16'777'216}));
}

TEST(LossScaling, AFixedScaleStaysWhateverHappens) {
  const LossScaling scaling{.mode = LossScaleMode::fixed, .initial = 6.0F, .growth_interval = 1};
  EXPECT_EQ(scales_of(scaling, 4, {1}), (std::vector<float>{6, 6, 6, 6}));
  EXPECT_EQ(scales_of({}, 4, {1}), (std::vector<float>{1, 1, 1, 1})) << "fp32 does not scale";
}

TEST(LossScaling, ATrainerThatDoesNotScaleItsLossIsRefusedInTheFirstStep) {
  run_ranks(1, [](World& world) {
    ShardedModel model{world, {.loss_scaling = {.mode = LossScaleMode::dynamic}}};
    (void)model.add_unit("a", {{"w", {3}}});
    model.materialize(init::constant(1.0F));
    EXPECT_EQ(model.loss_scale(), nullptr) << "nothing scales before optimize_with";
  });
  const auto body = [](World& world) {
    ShardedModel model{world, {.loss_scaling = {.mode = LossScaleMode::dynamic}}};
    const Unit unit = model.add_unit("a", {{"w", {3}}});
    model.materialize(init::constant(1.0F));
    model.optimize_with(SGD{});
    (void)model.forward(unit);
    (void)model.backward(unit);
    model.step();
  };
  EXPECT_THROW(run_ranks(1, body), ContractError);
}

TEST(LossScaling, AskingForTheScaleBeforeItExistsIsNotEnough) {
  run_ranks(1, [](World& world) {
    ShardedModel model{world, {.loss_scaling = {.mode = LossScaleMode::dynamic}}};
    const Unit unit = model.add_unit("a", {{"w", {3}}});
    model.materialize(init::constant(1.0F));
    EXPECT_EQ(model.loss_scale(), nullptr);
    model.optimize_with(SGD{});
    (void)model.forward(unit);
    (void)model.backward(unit);
    EXPECT_THROW(model.step(), ContractError);
  });
}

TEST(LossScaling, MicroBatchesBeforeTheOptimizerAreRefused) {
  for (const LossScaleMode mode : {LossScaleMode::off, LossScaleMode::dynamic}) {
    run_ranks(1, [&](World& world) {
      ShardedModel model{world, {.loss_scaling = {.mode = mode}}};
      const Unit unit = model.add_unit("a", {{"w", {3}}});
      model.materialize(init::constant(1.0F));
      (void)model.forward(unit);
      (void)model.backward(unit);
      if (mode == LossScaleMode::off) {
        EXPECT_NO_THROW(model.optimize_with(SGD{}));
      } else {
        EXPECT_THROW(model.optimize_with(SGD{}), ContractError);
      }
    });
  }
}

// The plan equals the measurement. The meta device has no values that could be non-finite.
TEST(LossScaling, IsPlanned) {
  const auto job = [](World& world) {
    ToyModel toy{world,
                 {.strategy = Strategy::zero2,
                  .loss_scaling = {.mode = LossScaleMode::dynamic},
                  .max_skips = 1},
                 {}};
    toy.model().optimize_with(AdamW{});
    if (world.device().computes()) { EXPECT_EQ(*toy.model().loss_scale(), 65'536.0F); }
    return world.memory().report().live.total();
  };
  std::vector<std::size_t> measured(3), planned(3);
  for (int rank = 0; rank < 3; ++rank) {
    simulate_rank({.rank = rank, .ranks = 3},
                  [&](World& world) { planned[static_cast<std::size_t>(rank)] = job(world); });
  }
  run_ranks(3,
            [&](World& world) { measured[static_cast<std::size_t>(world.rank())] = job(world); });
  EXPECT_EQ(measured, planned);
}

}  // namespace
}  // namespace tessera::test::loss_scaling_test
