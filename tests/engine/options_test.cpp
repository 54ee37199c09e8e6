// The rules of options and their messages: rules without units, and rules on the declared units.
// Nothing is trained.
#include "engine/rules/options.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "engine/rules/unit_rules.hpp"
#include "tessera/base/error.hpp"

namespace tessera::test::options_test {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr Strategy kZero3 = Strategy::zero3;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

/// The error that `call` throws; empty if none.
template <class Expected, class Call>
std::string refusal(const Call& call) {
  try {
    call();
  } catch (const Expected& error) { return error.what(); }
  return {};
}

std::string text_of(const ModelOptions& options, int ranks = 6) {
  return refusal<ConfigError>([&] { validate(options, ranks); });
}

ModelOptions for_inference(ModelOptions options) {
  options.purpose = Purpose::inference;
  return options;
}

TEST(OptionRules, AValueOutOfItsRangeIsNamedWithTheRange) {
  const std::vector<std::pair<ModelOptions, const char*>> table = {
      {{.compute = DType::fp64}, "`compute` is fp64, which is not supported: choose fp32, bf16"},
      {{.gradient = DType::fp64}, "`gradient` is fp64, which is not supported: choose fp32, bf16"},
      {{.reduce = DType::fp16}, "`reduce` is fp16, which is not supported: choose fp32, or bf16"},
      {{.prefetch = -1}, "`prefetch` is -1: choose a number of units from 0 to 1024"},
      {{.prefetch = 1025}, "`prefetch` is 1025: choose a number of units from 0 to 1024"},
      {{.strategy = kZero3, .tuning = {.prefetch_backward = -1}},
       "`tuning.prefetch_backward` is -1: choose"},
      {{.strategy = kZero3, .persist_elems = -1}, "`persist_elems` is -1: choose"},
      {{.accumulate = 0}, "`accumulate` is 0: choose at least 1 micro-batch a step"},
      {{.bucket_bytes = 0}, "`bucket_bytes` is 0: choose 1 byte or more"},
      {{.tuning = {.first_bucket_bytes = 0}},
       "`tuning.first_bucket_bytes` is 0: choose 1 byte or more"},
      {{.tuning = {.gradient_slots = 1}},
       "`tuning.gradient_slots` is 1: choose a number of blocks from 2"},
      {{.tuning = {.gradient_slots = 1025}}, "`tuning.gradient_slots` is 1025: choose"},
      {{.max_skips = -1}, "`max_skips` is -1: choose"},
      {{.align_elems = 0}, "`align_elems` is 0: choose a multiple of 64 elements up to 2^20"},
      {{.align_elems = -64}, "`align_elems` is -64"},
      {{.align_elems = 65}, "`align_elems` is 65"},
      {{.align_elems = 1 << 21}, "`align_elems` is 2097152"},
      {{.offload = Offload::optimizer, .offload_keep = 1.0F}, "`offload_keep` is 1: choose"},
      {{.offload = Offload::optimizer, .offload_keep = -0.1F}, "`offload_keep` is -0.1: choose"},
      {{.offload = Offload::optimizer, .offload_keep = kNan}, "`offload_keep` is nan: choose"},
      {{.loss_scaling = {.mode = LossScaleMode::fixed, .initial = 0.0F}},
       "`loss_scaling.initial` is 0: it must be above 0"},
      {{.strategy = Strategy::hybrid, .shard_group = 4},
       "`shard_group` is 4 and does not divide the number of ranks, 6: choose one of 1, 2, 3, 6"},
      {{.strategy = Strategy::hybrid, .shard_group = 12}, "`shard_group` is 12"},
      {{.strategy = Strategy::hybrid, .shard_group = -1}, "`shard_group` is -1"},
  };
  for (const auto& [options, text] : table) { EXPECT_THAT(text_of(options), StartsWith(text)); }
}

// A number that was converted without a check would choose nothing, or index a table beyond its
// end.
TEST(OptionRules, ANumberThatIsNoEnumeratorIsNamed) {
  const auto with = [](auto member, int number) {
    ModelOptions options;
    using Enum = std::remove_reference_t<decltype(options.*member)>;
    options.*member = static_cast<Enum>(number);
    return refusal<ContractError>([&] { validate(options, 6); });
  };
  for (const int number : {9, 77, 255}) {
    EXPECT_THAT(with(&ModelOptions::strategy, number), HasSubstr("`strategy` is"));
    EXPECT_THAT(with(&ModelOptions::compute, number), HasSubstr("`compute` is"));
    EXPECT_THAT(with(&ModelOptions::gradient, number), HasSubstr("`gradient` is"));
    EXPECT_THAT(with(&ModelOptions::reduce, number), HasSubstr("`reduce` is"));
    EXPECT_THAT(with(&ModelOptions::purpose, number), HasSubstr("`purpose` is"));
    EXPECT_THAT(with(&ModelOptions::master_weights, number), HasSubstr("`master_weights` is"));
    EXPECT_THAT(with(&ModelOptions::reshard, number), HasSubstr("`reshard` is"));
    EXPECT_THAT(with(&ModelOptions::accumulate_mode, number), HasSubstr("`accumulate_mode` is"));
    EXPECT_THAT(with(&ModelOptions::offload, number), HasSubstr("`offload` is"));
    EXPECT_THAT(with(&ModelOptions::checks, number), HasSubstr("`checks` is"));
    const ModelOptions scaled{.loss_scaling = {.mode = static_cast<LossScaleMode>(number)}};
    EXPECT_THAT(refusal<ContractError>([&] { validate(scaled, 6); }),
                HasSubstr("`loss_scaling.mode` is"));
    const auto optimizer = [&](auto member) {
      OptimizerOptions update;
      using Enum = std::remove_reference_t<decltype(update.*member)>;
      update.*member = static_cast<Enum>(number);
      return refusal<ContractError>([&] { validate(ModelOptions{}, AdamW{}, update); });
    };
    EXPECT_THAT(optimizer(&OptimizerOptions::moments), HasSubstr("`moments` is"));
    EXPECT_THAT(optimizer(&OptimizerOptions::rounding), HasSubstr("`rounding` is"));
  }
}

TEST(OptionRules, AnOptionWithoutEffectIsNamed) {
  const std::vector<std::pair<ModelOptions, const char*>> table = {
      {for_inference({.gradient = DType::bf16}), "gradient"},
      {for_inference({.reduce = DType::bf16}), "reduce"},
      {for_inference({.accumulate = 2}), "accumulate"},
      {for_inference({.accumulate_mode = AccumulateMode::every}), "accumulate_mode"},
      {for_inference({.loss_scaling = {.mode = LossScaleMode::off}}), "loss_scaling"},
      {for_inference({.max_skips = 0}), "max_skips"},
      {for_inference({.master_weights = MasterWeights::remainder}), "master_weights"},
      {for_inference({.offload = Offload::optimizer}), "offload"},
      {for_inference({.checks = Checks::strict}), "checks"},
      {for_inference({.strategy = kZero3, .tuning = {.prefetch_backward = 1}}),
       "tuning.prefetch_backward"},
      {for_inference({.strategy = kZero3, .reshard = Reshard::after_backward}), "reshard"},
      {{.offload_keep = 0.5F}, "offload_keep"},
  };
  for (const auto& [options, name] : table) {
    EXPECT_THAT(text_of(options), StartsWith(std::string{"`"} + name + "` has no effect"));
  }
  for (const Strategy strategy : all_strategies()) {
    const std::string under = " has no effect under " + std::string{to_string(strategy)};
    if (strategy != Strategy::hybrid) {
      EXPECT_THAT(text_of({.strategy = strategy, .shard_group = 1}),
                  StartsWith("`shard_group`" + under));
    }
    if (engine::gathers(strategy)) { continue; }
    EXPECT_THAT(text_of({.strategy = strategy, .reshard = Reshard::after_backward}),
                StartsWith("`reshard`" + under));
    EXPECT_THAT(text_of({.strategy = strategy, .persist_elems = 100}),
                StartsWith("`persist_elems`" + under));
    EXPECT_THAT(text_of({.strategy = strategy, .tuning = {.prefetch_backward = 1}}),
                StartsWith("`tuning.prefetch_backward`" + under));
    EXPECT_THAT(refusal<ConfigError>([&] { require_gathering(strategy, "prefetch"); }),
                StartsWith("`prefetch`" + under));
  }
}

TEST(OptionRules, ValidOptionsAreAccepted) {
  const std::vector<ModelOptions> table = {
      {},
      {.reduce = DType::bf16},
      {.align_elems = 192},
      {.prefetch = 1024},
      {.offload = Offload::optimizer, .offload_keep = 0.999F},
      {.compute = DType::bf16,
       .master_weights = MasterWeights::remainder,
       .offload = Offload::state},
      {.strategy = Strategy::hybrid, .shard_group = 3},
      {.strategy = kZero3, .reshard = Reshard::after_backward, .tuning = {.prefetch_backward = 0}},
      for_inference({.strategy = kZero3, .persist_elems = 7}),
      for_inference({.strategy = kZero3, .mesh = {{"shard", 6}}}),
  };
  for (const ModelOptions& options : table) { EXPECT_EQ(text_of(options), ""); }
}

TEST(OptionRules, OptionsThatExcludeEachOtherAreBothNamed) {
  EXPECT_THAT(text_of({.master_weights = MasterWeights::remainder, .offload = Offload::optimizer}),
              StartsWith("`master_weights` remainder cannot be combined with `offload` optimizer"));
  const auto update = [](const ModelOptions& options, const Optimizer& optimizer,
                         const OptimizerOptions& more) {
    return refusal<ConfigError>([&] { validate(options, optimizer, more); });
  };
  const ModelOptions remainders{.compute = DType::bf16, .master_weights = MasterWeights::remainder};
  EXPECT_THAT(update(remainders, AdamW{}, {.rounding = Rounding::stochastic}),
              StartsWith("`rounding` stochastic is incompatible with `master_weights` remainder, "
                         "which completes only parameters rounded to nearest"));
  const CustomOptimizer own{.name = "own", .states = 1, .update = [](const ShardUpdate&) {}};
  EXPECT_THAT(update(remainders, own, {}), StartsWith("the optimizer 'own' updates fp32 weights"));
  EXPECT_EQ(update({}, AdamW{}, {.moments = MomentFormat::int8}),
            "`moments` int8 needs blocks of 256 elements, but this model is laid out in multiples "
            "of 64, which cannot change once it is declared: make it with "
            "ModelOptions{.align_elems = 256}");
  EXPECT_THAT(update({.align_elems = 192}, AdamW{}, {.moments = MomentFormat::int8}),
              EndsWith("ModelOptions{.align_elems = 768}"));
  EXPECT_EQ(update(remainders, AdamW{}, {.moments = MomentFormat::bf16}), "");
  EXPECT_EQ(update({.align_elems = 512}, AdamW{}, {.moments = MomentFormat::int8}), "");
}

TEST(OptionRules, AGraphHoldsNoStepThatWaitsOrUpdatesBesideTheNext) {
  const auto in_graph = [](const ModelOptions& options) {
    return refusal<ConfigError>([&] { validate_in_graph(options); });
  };
  EXPECT_THAT(in_graph({.checks = Checks::memory}),
              StartsWith("a step with `checks` memory cannot be one CUDA graph"));
  EXPECT_THAT(in_graph({.offload = Offload::optimizer}),
              StartsWith("a step with `offload` optimizer cannot be one CUDA graph"));
  EXPECT_THAT(in_graph({.offload = Offload::state}),
              StartsWith("a step with `offload` state cannot be one CUDA graph"));
  EXPECT_EQ(in_graph({.checks = Checks::strict}), "");
}

TEST(OptionRules, AUnitsOptionIsNamedWithTheUnit) {
  const auto unit = [](const UnitOptions& own, const ModelOptions& options,
                       std::vector<ParameterSpec> specs = {}) {
    return refusal<ConfigError>([&] { engine::check_unit("a", specs, own, options); });
  };
  const UnitOptions reshards{.reshard = Reshard::after_backward};
  EXPECT_THAT(unit(reshards, {}), StartsWith("unit 'a': `reshard` has no effect under ddp"));
  EXPECT_THAT(
      unit({.kind = UnitKind::root, .reshard = Reshard::after_forward}, {.strategy = kZero3}),
      StartsWith("unit 'a': `reshard` has no effect on a root unit"));
  EXPECT_THAT(unit(reshards, for_inference({.strategy = kZero3})), HasSubstr("no backward"));
  EXPECT_EQ(unit(reshards, {.strategy = kZero3}), "");
  EXPECT_THAT(unit({}, {}, {{.name = "w", .shape = {4}, .dtype = DType::fp64}}),
              StartsWith("the dtype of 'a.w' is fp64, which is not supported"));
}

/// The result of `check_units` on two units of 100 elements, each padded to a shard of 128 on one
/// rank.
std::string units_of(const ModelOptions& options, const ParameterSpec& last = {"w", {100}},
                     const UnitOptions& own = {}) {
  const LayoutOptions layout{options.compute, options.gradient, options.reduce};
  const UnitLayout first = UnitLayout::make({{"w", {100}}}, layout, 1);
  const UnitLayout second = UnitLayout::make({last}, layout, 1);
  const std::vector<engine::DeclaredUnit> units = {{"a", &first, {}}, {"b", &second, own}};
  return refusal<ConfigError>([&] { engine::check_units(units, options); });
}

TEST(UnitRules, AnOptionWithoutEffectOnTheUnitsIsNamed) {
  const UnitOptions unzeroed{.gradients = GradientInit::unzeroed};
  EXPECT_THAT(units_of({.accumulate = 2}, {"w", {100}}, unzeroed),
              StartsWith("unit 'b' asks for unzeroed gradients, but 2 micro-batches"));
  EXPECT_EQ(
      units_of({.accumulate = 2, .accumulate_mode = AccumulateMode::every}, {"w", {100}}, unzeroed),
      "");
  EXPECT_THAT(units_of({.strategy = kZero3, .persist_elems = 99}),
              StartsWith("`persist_elems` is 99, but the smallest unit has 100 elements"));
  EXPECT_EQ(units_of({.strategy = kZero3, .persist_elems = 100}), "");
  EXPECT_THAT(
      units_of({.offload = Offload::optimizer, .offload_keep = 0.4F}),
      StartsWith("`offload_keep` is 0.4, but the last unit has 128 of the 256 trained elements"));
  EXPECT_EQ(units_of({.offload = Offload::optimizer, .offload_keep = 0.5F}), "");
}

TEST(UnitRules, RemaindersNeedATrainedBf16ParameterAndNoFp16One) {
  const auto with = [](DType compute, const ParameterSpec& last = {"w", {100}}) {
    return units_of({.compute = compute, .master_weights = MasterWeights::remainder}, last);
  };
  EXPECT_EQ(with(DType::bf16), "");
  EXPECT_EQ(with(DType::bf16, {.name = "w", .shape = {4}, .dtype = DType::fp32}), "");
  EXPECT_EQ(with(DType::fp32, {.name = "w", .shape = {4}, .dtype = DType::bf16}), "");
  EXPECT_EQ(
      with(DType::bf16, {.name = "w", .shape = {4}, .trainable = false, .dtype = DType::fp16}), "");
  EXPECT_THAT(with(DType::fp32), StartsWith("`master_weights` remainder has no effect: no bf16"));
  EXPECT_THAT(
      with(DType::fp32, {.name = "w", .shape = {4}, .trainable = false, .dtype = DType::bf16}),
      HasSubstr("no bf16 parameter is trained"));
  EXPECT_THAT(with(DType::bf16, {.name = "w", .shape = {4}, .dtype = DType::fp16}),
              StartsWith("`master_weights` remainder: unit 'b' trains fp16 parameters"));
}

TEST(UnitRules, AnUpdateNeedsSomethingToRoundOrDecay) {
  const auto update = [](DType compute, Offload offload, const Optimizer& optimizer,
                         const OptimizerOptions& more, bool trains = true) {
    const ModelOptions options{.compute = compute, .offload = offload};
    const ParameterSpec frozen{.name = "f", .shape = {4}, .trainable = false, .dtype = DType::bf16};
    const UnitLayout layout = UnitLayout::make(
        {{.name = "w", .shape = {4}, .trainable = trains}, frozen}, {.compute = compute}, 1);
    const std::vector<engine::DeclaredUnit> units = {{"a", &layout, {}}};
    return refusal<ConfigError>([&] {
      engine::check_units(units, options);
      engine::check_update(units, options, optimizer, more);
    });
  };
  const OptimizerOptions stochastic{.rounding = Rounding::stochastic};
  const OptimizerOptions moments{.moments = MomentFormat::bf16, .rounding = Rounding::stochastic};
  const SGD plain{.momentum = 0.0F};
  using enum Offload;
  EXPECT_THAT(
      update(DType::fp32, none, AdamW{}, stochastic),
      StartsWith("`rounding` stochastic has no effect, because neither trained parameters"));
  EXPECT_EQ(update(DType::bf16, none, AdamW{}, stochastic), "");
  EXPECT_EQ(update(DType::fp32, none, AdamW{}, moments), "");
  EXPECT_THAT(update(DType::fp32, optimizer, plain, {}),
              StartsWith("`offload` optimizer has no effect, because SGD lr 0.01 momentum 0 "
                         "weight_decay 0 keeps no state"));
  EXPECT_THAT(update(DType::fp32, optimizer, AdamW{}, {}, /*trains=*/false),
              StartsWith("`offload` optimizer has no effect, because nothing is trained"));
  EXPECT_THAT(update(DType::fp32, state, plain, {}),
              StartsWith("`offload` state has no effect, because SGD lr 0.01 momentum 0 "));
  EXPECT_EQ(update(DType::bf16, optimizer, plain, {}), "");
  EXPECT_EQ(update(DType::bf16, state, plain, {}), "");
  EXPECT_EQ(update(DType::fp32, optimizer, SGD{.momentum = 0.9F}, {}), "");
}

TEST(UnitRules, AModelHasAtMost2To50Elements) {
  const auto elems = [](std::int64_t declared, std::int64_t extent) {
    const UnitLayout layout = UnitLayout::make({{"w", {extent}}}, {}, 1);
    return engine::add_elems(declared, "a", layout);
  };
  const std::int64_t most = std::int64_t{1} << 50;
  EXPECT_EQ(elems(128, 100), 256);
  EXPECT_EQ(elems(most - 128, 100), most);
  for (const std::int64_t extent : {std::int64_t{129}, most, std::int64_t{1} << 60}) {
    EXPECT_THAT(refusal<ConfigError>([&] { (void)elems(most - 128, extent); }),
                StartsWith("unit 'a' takes the model above 2^50 elements"));
  }
}

}  // namespace
}  // namespace tessera::test::options_test
