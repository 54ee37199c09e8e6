// Remainders instead of fp32 master weights: training has the same bits.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "kernels/support/master_parts.hpp"
#include "support/groups.hpp"
#include "support/toy_model.hpp"
#include "tessera/world/run.hpp"

namespace tessera::test::remainder_test {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Case {
  const char* name;
  Optimizer optimizer = AdamW{.lr = 0.02F};
  OptimizerOptions options = {};
  ModelOptions model = {};
  std::optional<DType> small = {};  ///< of biases and scales
  std::vector<Spoilt> spoilt = {};
};

std::vector<Case> cases() {
  const OptimizerOptions bf16_moments{.moments = MomentFormat::bf16};
  return {
      {"adamw"},
      {"adam", Adam{.lr = 0.02F, .weight_decay = 0.01F}},
      {"lion", Lion{.lr = 0.01F, .weight_decay = 0.1F}},
      {"momentum", SGD{.lr = 0.2F}},
      {"sgd", SGD{.lr = 0.2F, .momentum = 0.0F}},
      {"bf16_moments", AdamW{.lr = 0.02F}, bf16_moments},
      {"int8_moments",
       AdamW{.lr = 0.02F},
       {.moments = MomentFormat::int8},
       {.align_elems = kMomentBlock}},
      {"bf16_gradients", AdamW{.lr = 0.02F}, {}, {.gradient = DType::bf16}},
      {"reduced_in_bf16", AdamW{.lr = 0.02F}, {}, {.reduce = DType::bf16}},
      {"fp32_biases", AdamW{.lr = 0.02F}, {}, {}, DType::fp32},
      {"accumulation",
       AdamW{.lr = 0.02F},
       {},
       {.accumulate = 3, .accumulate_mode = AccumulateMode::deferred}},
      {"accumulation_of_every",
       AdamW{.lr = 0.02F},
       {},
       {.accumulate = 2, .accumulate_mode = AccumulateMode::every}},
      {"skipped_steps", AdamW{.lr = 0.02F}, {}, {}, {}, {{kInfinity, 0, 1}, {kInfinity, 0, 2}}},
      {"groups",
       AdamW{.lr = 0.02F},
       {.groups = {{.name = "weights",
                    .contains = [](const ParameterInfo& p) { return p.name == "weight"; },
                    .lr_scale = 0.5F,
                    .weight_decay = 0.2F}}}},
  };
}

class Remainders : public ::testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(Cases, Remainders, ::testing::ValuesIn(cases()),
                         [](const auto& tested) { return std::string{tested.param.name}; });

ToyRun run_of(const Case& tested, int ranks) {
  ToyRun run;
  run.ranks = ranks;
  run.steps = TESSERA_SANITIZED == 1 ? 4 : 6;
  run.toy.batch = 2;
  run.toy.small_dtype = tested.small;
  run.options = tested.model;
  run.options.compute = DType::bf16;
  run.optimizer = tested.optimizer;
  run.optimizer_options = tested.options;
  run.spoilt = tested.spoilt;
  return run;
}

TEST_P(Remainders, TrainAsFp32MastersDoUnderEveryStrategy) {
  for (const int ranks : tried_ranks({1, 2, 4}, {2})) {
    ToyRun run = run_of(GetParam(), ranks);
    run.options.strategy = Strategy::ddp;
    const ToyOutcome expected = run_toy(run);
    if (run.steps >= 6) { EXPECT_LT(expected.losses.back(), expected.losses.front()); }
    EXPECT_TRUE(expected.clipped);
    run.options.master_weights = MasterWeights::remainder;
    for (const Strategy strategy : tried_strategies()) {
      run.options.strategy = strategy;
      run.options.shard_group = groups_of_one(strategy);
      EXPECT_EQ(difference(expected, run_toy(run)), "") << to_string(strategy) << " " << ranks;
    }
  }
}

TEST_P(Remainders, TrainInGroupsAsFp32MastersInGroups) {
  ToyRun run = run_of(GetParam(), 4);
  run.options.strategy = Strategy::hybrid;
  run.options.shard_group = 2;
  const ToyOutcome expected = run_toy(run);
  run.options.master_weights = MasterWeights::remainder;
  EXPECT_EQ(difference(expected, run_toy(run)), "");
}

/// Special values that a master may have, for a bf16 parameter and an fp32 one next to it. Finite
/// ones whose bf16 parameter would be infinite are refused.
std::vector<float> special_values() {
  std::vector<float> all;
  for (const std::uint32_t upper :
       {0x0000U, 0x0001U, 0x007FU, 0x0080U, 0x3F7FU, 0x3F80U, 0x7F7FU}) {
    for (const std::uint32_t lower : {0x0000U, 0x0001U, 0x7FFFU, 0x8000U, 0x8001U, 0xFFFFU}) {
      if (upper == 0x7F7FU && lower >= 0x8000U) { continue; }
      for (const std::uint32_t sign : {0U, 0x8000U}) {
        all.push_back(std::bit_cast<float>((sign | upper) << 16U | lower));
      }
    }
  }
  for (const std::uint32_t other : {0x7F800000U, 0xFF800000U, 0x7FC00001U, 0xFFFFFFFFU}) {
    all.push_back(std::bit_cast<float>(other));
  }
  return all;
}

std::vector<std::uint32_t> bits_of(std::span<const float> values) {
  std::vector<std::uint32_t> bits;
  for (const float value : values) { bits.push_back(std::bit_cast<std::uint32_t>(value)); }
  return bits;
}

TEST(RemaindersOfSpecialValues, AreExportedAsTheirMasters) {
  const std::vector<float> values = special_values();
  const auto elems = std::ssize(values);
  const Initializer initial = [&](const ParameterInfo&, std::int64_t first, std::span<float> out) {
    std::copy_n(values.begin() + first, out.size(), out.begin());
  };
  for (const Strategy strategy : tried_strategies()) {
    run_ranks(2, [&](World& world) {
      ShardedModel model{world,
                         {.strategy = strategy,
                          .shard_group = groups_of_one(strategy),
                          .compute = DType::bf16,
                          .master_weights = MasterWeights::remainder}};
      (void)model.add_unit("unit",
                           {{"w", {elems}}, {.name = "b", .shape = {elems}, .dtype = DType::fp32}});
      model.materialize(initial);
      model.export_masters(
          [&](const ParameterInfo& info, std::int64_t first, std::span<const float> masters) {
            const auto part =
                std::span{values}.subspan(static_cast<std::size_t>(first), masters.size());
            EXPECT_EQ(bits_of(masters), bits_of(part)) << info.name << " " << to_string(strategy);
          });
      for (const auto& [name, parameter] : exported(model, StateTensor::parameters)) {
        if (name != "unit.w") { continue; }
        for (std::size_t i = 0; i < parameter.size(); ++i) {
          const std::uint32_t upper = kernels::parameter_bits(values[i]);
          EXPECT_EQ(std::bit_cast<std::uint32_t>(parameter[i]), upper << 16U);
        }
      }
    });
  }
}

// A model for inference has no masters, and the same parameters as a training model before its
// first step.
TEST(RemaindersOfSpecialValues, ParametersForInferenceAreRoundedLikeTrainedOnes) {
  const Initializer ties = [](const ParameterInfo&, std::int64_t first, std::span<float> out) {
    for (std::size_t i = 0; i < out.size(); ++i) {
      const auto upper =
          0x3F00U + static_cast<std::uint32_t>(first) + static_cast<std::uint32_t>(i);
      out[i] = std::bit_cast<float>(upper << 16U | 0x8000U);
    }
  };
  const auto parameters = [&](Purpose purpose) {
    std::map<std::string, std::vector<float>> result;
    run_ranks(1, [&](World& world) {
      ShardedModel model{world, {.compute = DType::bf16, .purpose = purpose}};
      (void)model.add_unit("unit", {{"w", {100}}, {"frozen", {100}, /*trainable=*/false}});
      model.materialize(ties);
      result = exported(model, StateTensor::parameters);
    });
    return result;
  };
  const auto trained = parameters(Purpose::training);
  EXPECT_EQ(trained, parameters(Purpose::inference));
  EXPECT_NE(trained.at("unit.w"), trained.at("unit.frozen")) << "whose ties go to even";
}

}  // namespace
}  // namespace tessera::test::remainder_test
