// Every optimizer, every dtype of its state, under every strategy.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "support/groups.hpp"
#include "support/toy_model.hpp"
#include "tessera/world/run.hpp"

namespace tessera::test::optimizers_test {
namespace {

struct Case {
  const char* name;
  Optimizer optimizer;
  OptimizerOptions options = {};
  ModelOptions model = {};
};

std::vector<Case> cases() {
  const OptimizerOptions bf16_moments{.moments = MomentFormat::bf16};
  const OptimizerOptions stochastic{.moments = MomentFormat::bf16,
                                    .rounding = Rounding::stochastic};
  const OptimizerOptions int8{.moments = MomentFormat::int8};
  const ModelOptions bf16{.compute = DType::bf16};
  const ModelOptions blocks{.align_elems = kMomentBlock};
  const ModelOptions bf16_blocks{.compute = DType::bf16, .align_elems = kMomentBlock};
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
      {"adamw_int8", AdamW{.lr = 0.02F}, int8, blocks},
      {"adam_int8_bf16", adam, int8, bf16_blocks},
      {"lion_int8_bf16_stochastic",
       lion,
       {.moments = MomentFormat::int8, .rounding = Rounding::stochastic},
       bf16_blocks},
      {"momentum_int8", SGD{.lr = 0.2F}, int8, blocks},
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
  for (const int ranks : tried_ranks({1, 2, 3, 4}, {1, 3})) {
    ToyRun run = run_of(GetParam(), ranks);
    const ToyOutcome expected = run_toy(run);
    EXPECT_LT(expected.losses.back(), expected.losses.front());
    for (const Strategy strategy : tried_strategies()) {
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
  if (!run.optimizer_options.groups.empty() ||
      run.optimizer_options.moments != MomentFormat::fp32 ||
      run.optimizer_options.rounding != Rounding::nearest) {
    run.optimizer = GetParam().optimizer;
    run.optimizer_options = {};
  }
  EXPECT_NE(difference(with, run_toy(run)), "");
}

/// Parameters after six updates. The first five use gradients that are the same on every rank:
/// powers of two, so that sums and averages are exact. The sixth has no gradient: only moments move
/// the weights.
std::map<std::string, std::vector<float>> trained(int ranks, const ModelOptions& model_options,
                                                  const OptimizerOptions& options) {
  std::map<std::string, std::vector<float>> result;
  run_ranks(ranks, [&](World& world) {
    ShardedModel model{world, model_options};
    const Unit unit = model.add_unit("unit", {{"a", {1700}}, {"b", {33}}});
    model.materialize(init::normal(1, 1.0F));
    model.optimize_with(AdamW{.lr = 1e-3F}, options);
    for (int step = 0; step < 6; ++step) {
      (void)model.forward(unit);
      {
        const auto scope = model.backward(unit);
        for (const char* name : {"a", "b"}) {
          float* const gradient = scope.grad(name);
          for (std::int64_t i = 0; i < scope.grad(name).shape().elems(); ++i) {
            const float sign = i % 2 == 0 ? 1.0F : -1.0F;
            gradient[i] = step == 5 ? 0.0F : std::ldexp(sign, static_cast<int>(i + step) % 5);
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

/// Hybrid in groups of every size, other strategies once: sums are exact, in any order.
void for_every_strategy_and_group(int ranks, const std::function<void(Strategy, int)>& run) {
  for (const Strategy strategy : tried_strategies()) {
    if (strategy != Strategy::hybrid) {
      run(strategy, 0);
      continue;
    }
    for (const int group : divisors(ranks)) { run(strategy, group); }
  }
}

TEST(StochasticRounding, IsBitIdenticalOnAnyNumberOfRanks) {
  ModelOptions model{.compute = DType::bf16};
  OptimizerOptions options{.moments = MomentFormat::bf16, .rounding = Rounding::stochastic};
  const auto expected = trained(1, model, options);
  for (const int ranks : {2, 4, 8}) {
    for_every_strategy_and_group(ranks, [&](Strategy strategy, int group) {
      model.strategy = strategy;
      model.shard_group = group;
      EXPECT_EQ(trained(ranks, model, options), expected)
          << ranks << " " << to_string(strategy) << " " << group;
    });
  }
  model = {.compute = DType::bf16};
  options.rounding_seed = 2;
  EXPECT_NE(trained(1, model, options), expected) << "another seed";
}

TEST(MomentsOfEightBits, AreBitIdenticalOnAnyRanksUnderEveryStrategy) {
  for (const DType compute : {DType::fp32, DType::bf16}) {
    ModelOptions model{.compute = compute, .align_elems = kMomentBlock};
    OptimizerOptions options{.moments = MomentFormat::int8};
    const auto expected = trained(1, model, options);
    for (const int ranks : {2, 3, 4, 8}) {
      for_every_strategy_and_group(ranks, [&](Strategy strategy, int group) {
        model.strategy = strategy;
        model.shard_group = group;
        EXPECT_EQ(trained(ranks, model, options), expected)
            << ranks << " " << to_string(strategy) << " " << group;
      });
    }
    model = {.compute = compute, .align_elems = kMomentBlock};
    options.rounding_seed = 2;
    EXPECT_NE(trained(1, model, options), expected) << "another seed";
  }
}

// At most 2.04: a byte for each moment, and a four-byte scale for every 256 moments.
TEST(OptimizerState, OfEightBitsTakesTwoBytesAParameter) {
  for (const Strategy strategy : {Strategy::ddp, Strategy::zero1, Strategy::zero3}) {
    run_ranks(4, [&](World& world) {
      ShardedModel model{world, {.strategy = strategy, .align_elems = kMomentBlock}};
      (void)model.add_unit("unit", {{"w", {300, 1024}}, {"b", {1024}}});
      model.materialize(init::constant(1.0F));
      model.optimize_with(AdamW{}, {.moments = MomentFormat::int8});
      const std::size_t elems = 301 * 1024 / (strategy == Strategy::ddp ? 1 : 4);
      const std::size_t bytes = model.state_bytes().optimizer;
      EXPECT_EQ(bytes, world.memory().report().live[Category::optimizer]);
      EXPECT_GE(bytes, 2 * (elems + elems / kMomentBlock * sizeof(float)));
      EXPECT_LE(static_cast<double>(bytes), 2.04 * static_cast<double>(elems));
    });
  }
}

TEST(OptimizerState, TakesTheBytesOfItsRuleAndDtypes) {
  const auto bytes = [](const Optimizer& optimizer, MomentFormat moments, DType compute,
                        MasterWeights kind = MasterWeights::fp32) {
    std::size_t result = 0;
    run_ranks(2, [&](World& world) {
      ShardedModel model{world,
                         {.strategy = Strategy::zero1, .compute = compute, .master_weights = kind}};
      (void)model.add_unit("unit", {{"w", {1280}}});
      model.materialize(init::constant(1.0F));
      model.optimize_with(optimizer, {.moments = moments});
      if (world.rank() == 0) { result = model.state_bytes().optimizer; }
    });
    return result / 640;  // per parameter in the shard
  };
  EXPECT_EQ(bytes(AdamW{}, MomentFormat::fp32, DType::fp32), 8U);
  EXPECT_EQ(bytes(AdamW{}, MomentFormat::bf16, DType::fp32), 4U);
  EXPECT_EQ(bytes(AdamW{}, MomentFormat::fp32, DType::bf16), 12U);
  EXPECT_EQ(bytes(AdamW{}, MomentFormat::fp32, DType::bf16, MasterWeights::remainder), 10U);
  EXPECT_EQ(bytes(SGD{.momentum = 0.0F}, MomentFormat::fp32, DType::bf16, MasterWeights::remainder),
            2U);
  EXPECT_EQ(bytes(Adam{}, MomentFormat::bf16, DType::bf16), 8U);
  EXPECT_EQ(bytes(Lion{}, MomentFormat::fp32, DType::bf16), 8U);
  EXPECT_EQ(bytes(Lion{}, MomentFormat::bf16, DType::bf16), 6U);
  EXPECT_EQ(bytes(SGD{.momentum = 0.0F}, MomentFormat::fp32, DType::bf16), 4U);
  EXPECT_EQ(bytes(CustomOptimizer{.name = "c", .states = 3, .update = [](const ShardUpdate&) {}},
                  MomentFormat::fp32, DType::bf16),
            16U);
}

}  // namespace
}  // namespace tessera::test::optimizers_test
