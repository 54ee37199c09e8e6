// Every optimizer, every dtype of its state, under every strategy.
#include <gtest/gtest.h>

#include <cmath>

#include "support/groups.hpp"
#include "support/toy_model.hpp"

namespace tessera::testing {
namespace {

struct Case {
  const char* name;
  Optimizer optimizer;
  OptimizerOptions options = {};
  ModelOptions model = {};
};

std::vector<Case> cases() {
  const OptimizerOptions bf16_moments{.moments = DType::bf16};
  const OptimizerOptions stochastic{.moments = DType::bf16, .rounding = Rounding::stochastic};
  const ModelOptions bf16{.compute = DType::bf16};
  const Adam adam{.lr = 0.02F, .weight_decay = 0.01F};
  const Lion lion{.lr = 0.01F, .weight_decay = 0.1F};
  return {
      {"adam", adam},
      {"lion", lion},
      {"adamw_bf16_moments", AdamW{.lr = 0.02F}, bf16_moments},
      {"lion_bf16_moments", lion, bf16_moments},
      {"momentum_bf16", SGD{.lr = 0.2F}, bf16_moments},
      {"adamw_bf16_stochastic", AdamW{.lr = 0.02F}, stochastic, bf16},
      {"adam_fp16_stochastic", adam, {.rounding = Rounding::stochastic}, {.compute = DType::fp16}},
      {"lion_bf16_stochastic", lion, stochastic, bf16},
      {"groups",
       AdamW{.lr = 0.02F},
       {.groups = {{.name = "weights",
                    .contains = [](const ParameterInfo& p) { return p.name == "weight"; },
                    .lr_scale = 0.5F,
                    .weight_decay = 0.2F}}}},
  };
}

class Optimizers : public ::testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(Rules, Optimizers, ::testing::ValuesIn(cases()),
                         [](const auto& tested) { return std::string{tested.param.name}; });

ToyRun run_of(const Case& tested, int ranks) {
  ToyRun run;
  run.ranks = ranks;
  run.steps = 20;
  run.toy.batch = 2;
  run.options = tested.model;
  run.optimizer = tested.optimizer;
  run.optimizer_options = tested.options;
  return run;
}

TEST_P(Optimizers, AreBitIdenticalUnderEveryStrategy) {
  for (const int ranks : {1, 2, 3, 4}) {
    ToyRun run = run_of(GetParam(), ranks);
    const ToyOutcome expected = run_toy(run);
    EXPECT_LT(expected.losses.back(), expected.losses.front());
    for (const Strategy strategy : all_strategies()) {
      run.options.strategy = strategy;
      run.options.shard_group = groups_of_one(strategy);
      EXPECT_EQ(difference(expected, run_toy(run)), "") << to_string(strategy) << " " << ranks;
    }
  }
}

TEST_P(Optimizers, TheOptionHasAnEffect) {
  ToyRun run = run_of(GetParam(), 2);
  const ToyOutcome with = run_toy(run);
  run.optimizer = AdamW{.lr = 0.02F};
  if (!run.optimizer_options.groups.empty() || run.optimizer_options.moments != DType::fp32 ||
      run.optimizer_options.rounding != Rounding::nearest) {
    run.optimizer = GetParam().optimizer;
    run.optimizer_options = {};
  }
  EXPECT_NE(difference(with, run_toy(run)), "");
}

/// After five updates by gradients that are the same on every rank: powers of two, so that their
/// sums over 1, 2 and 4 ranks and the averages are exact.
std::map<std::string, std::vector<float>> trained(int ranks, Strategy strategy,
                                                  std::uint64_t seed = 1) {
  std::map<std::string, std::vector<float>> result;
  run_ranks(ranks, [&](World& world) {
    ShardedModel model{world, {.strategy = strategy, .compute = DType::bf16}};
    const Unit unit = model.add_unit("unit", {{"a", {700}}, {"b", {33}}});
    model.materialize(init::normal(1, 1.0F));
    model.optimize_with(
        AdamW{.lr = 1e-3F},
        {.moments = DType::bf16, .rounding = Rounding::stochastic, .rounding_seed = seed});
    for (int step = 0; step < 5; ++step) {
      (void)model.forward(unit);
      {
        const auto scope = model.backward(unit);
        for (const char* name : {"a", "b"}) {
          float* const gradient = scope.grad(name);
          for (std::int64_t i = 0; i < scope.grad(name).shape().elems(); ++i) {
            gradient[i] = std::ldexp(i % 2 == 0 ? 1.0F : -1.0F, static_cast<int>(i + step) % 5);
          }
        }
      }
      model.step();
    }
    auto parameters = exported(model, StateTensor::parameters);
    if (world.rank() == 0) { result = std::move(parameters); }
  });
  return result;
}

TEST(StochasticRounding, NoNumberOfRanksChangesABit) {
  const auto expected = trained(1, Strategy::ddp);
  for (const int ranks : {2, 4, 8}) {
    for (const Strategy strategy : all_strategies()) {
      EXPECT_EQ(trained(ranks, strategy), expected) << ranks << " " << to_string(strategy);
    }
  }
  EXPECT_NE(trained(1, Strategy::ddp, 2), expected) << "another seed";
}

TEST(StochasticRounding, IsRefusedWhereNothingIsRounded) {
  run_ranks(1, [](World& world) {
    ShardedModel model{world};
    (void)model.add_unit(
        "unit",
        {{"w", {4}}, {.name = "frozen", .shape = {4}, .trainable = false, .dtype = DType::bf16}});
    model.materialize(init::constant(1.0F));
    EXPECT_THROW(model.optimize_with(AdamW{}, {.rounding = Rounding::stochastic}), ConfigError);
    EXPECT_NO_THROW(
        model.optimize_with(AdamW{}, {.moments = DType::bf16, .rounding = Rounding::stochastic}));
  });
}

TEST(OptimizerState, TakesWhatItsRuleAndDTypesSay) {
  const auto bytes = [](const Optimizer& optimizer, DType moments, DType compute) {
    std::size_t result = 0;
    run_ranks(2, [&](World& world) {
      ShardedModel model{world, {.strategy = Strategy::zero1, .compute = compute}};
      (void)model.add_unit("unit", {{"w", {1280}}});
      model.materialize(init::constant(1.0F));
      model.optimize_with(optimizer, {.moments = moments});
      if (world.rank() == 0) { result = model.state_bytes().optimizer; }
    });
    return result / 640;  // of each parameter in the shard
  };
  EXPECT_EQ(bytes(AdamW{}, DType::fp32, DType::fp32), 8U);
  EXPECT_EQ(bytes(AdamW{}, DType::bf16, DType::fp32), 4U);
  EXPECT_EQ(bytes(AdamW{}, DType::fp32, DType::bf16), 12U);
  EXPECT_EQ(bytes(Adam{}, DType::bf16, DType::bf16), 8U);
  EXPECT_EQ(bytes(Lion{}, DType::fp32, DType::bf16), 8U);
  EXPECT_EQ(bytes(Lion{}, DType::bf16, DType::bf16), 6U);
  EXPECT_EQ(bytes(SGD{.momentum = 0.0F}, DType::fp32, DType::bf16), 4U);
  EXPECT_EQ(bytes(CustomOptimizer{.name = "c", .states = 3, .update = [](const ShardUpdate&) {}},
                  DType::fp32, DType::bf16),
            16U);
}

}  // namespace
}  // namespace tessera::testing
