// Where remainders of master weights are refused, and what the refusal says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/tessera.hpp"

namespace tessera::test::master_weights_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const ModelOptions kRemainders{.compute = DType::bf16, .master_weights = MasterWeights::remainder};

/// What a model of these parameters is told, by `materialize` or before.
std::string refusal(const ModelOptions& options, const std::vector<ParameterSpec>& specs) {
  std::string text;
  run_ranks(1, [&](World& world) {
    try {
      ShardedModel model{world, options};
      (void)model.add_unit("unit", specs);
      model.materialize(init::constant(1.0F));
    } catch (const ConfigError& error) { text = error.what(); }
  });
  return text;
}

/// What `optimize_with` says.
std::string refusal(const Optimizer& optimizer, const OptimizerOptions& options) {
  std::string text;
  run_ranks(1, [&](World& world) {
    ShardedModel model{world, kRemainders};
    (void)model.add_unit("unit", {{"w", {4}}});
    model.materialize(init::constant(1.0F));
    try {
      model.optimize_with(optimizer, options);
    } catch (const ConfigError& error) { text = error.what(); }
  });
  return text;
}

TEST(MasterWeightsOption, NeedsABf16ParameterThatIsTrained) {
  EXPECT_EQ(refusal(kRemainders, {{"w", {4}}}), "");
  EXPECT_EQ(refusal(kRemainders, {{"w", {4}}, {.name = "b", .shape = {4}, .dtype = DType::fp32}}),
            "");
  EXPECT_EQ(refusal({.master_weights = MasterWeights::remainder},
                    {{.name = "w", .shape = {4}, .dtype = DType::bf16}}),
            "");
  const auto no_effect = AllOf(HasSubstr("no effect"), HasSubstr("no bf16 parameter is trained"));
  EXPECT_THAT(refusal({.master_weights = MasterWeights::remainder}, {{"w", {4}}}), no_effect);
  EXPECT_THAT(refusal(kRemainders, {{"w", {4}, /*trainable=*/false}}), no_effect);
}

TEST(MasterWeightsOption, IsRefusedOfFp16) {
  const auto says = AllOf(HasSubstr("unit 'unit'"), HasSubstr("fp16"), HasSubstr("use bf16"));
  EXPECT_THAT(
      refusal({.compute = DType::fp16, .master_weights = MasterWeights::remainder}, {{"w", {4}}}),
      says);
  const ParameterSpec half{.name = "b", .shape = {4}, .dtype = DType::fp16};
  EXPECT_THAT(refusal(kRemainders, {{"w", {4}}, half}), says);
  const ParameterSpec frozen{.name = "b", .shape = {4}, .trainable = false, .dtype = DType::fp16};
  EXPECT_EQ(refusal(kRemainders, {{"w", {4}}, frozen}), "");
}

TEST(MasterWeightsOption, IsRefusedForInference) {
  ModelOptions options = kRemainders;
  options.purpose = Purpose::inference;
  EXPECT_THAT(refusal(options, {{"w", {4}}}), HasSubstr("`master_weights` has no effect"));
}

TEST(MasterWeightsOption, NeedsParametersThatAreTheNearest) {
  EXPECT_EQ(refusal(AdamW{}, {.moments = MomentFormat::bf16}), "");
  EXPECT_THAT(
      refusal(AdamW{}, {.rounding = Rounding::stochastic}),
      AllOf(HasSubstr("`rounding` stochastic is incompatible with `master_weights` remainder"),
            HasSubstr("set `rounding` to nearest")));
}

TEST(MasterWeightsOption, LeavesNoWeightsForAnOptimizerOfTheUsersOwn) {
  const CustomOptimizer own{.name = "own", .states = 1, .update = [](const ShardUpdate&) {}};
  EXPECT_THAT(refusal(own, {}),
              AllOf(HasSubstr("'own'"), HasSubstr("set `master_weights` to fp32")));
}

TEST(MasterWeightsOption, RanksThatDisagreeAreTold) {
  const auto body = [](World& world) {
    ModelOptions options = kRemainders;
    if (world.rank() == 1) { options.master_weights = MasterWeights::fp32; }
    ShardedModel model{world, options};
    (void)model.add_unit("unit", {{"w", {4}}});
    model.materialize(init::constant(1.0F));
  };
  try {
    run_ranks(2, body);
    FAIL() << "two kinds of master weights in one model";
  } catch (const ContractError& error) { EXPECT_THAT(error.what(), HasSubstr("master weights")); }
}

TEST(MasterWeightsOption, HasNamesThatAreRead) {
  for (const MasterWeights kind : {MasterWeights::fp32, MasterWeights::remainder}) {
    EXPECT_EQ(parse_master_weights(to_string(kind)), kind);
  }
  EXPECT_THROW((void)parse_master_weights("bf16"), ConfigError);
}

}  // namespace
}  // namespace tessera::test::master_weights_test
