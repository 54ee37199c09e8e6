// 16-bit parameters and gradients with fp32 master weights, under every strategy.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "kernels/support/master_parts.hpp"
#include "support/groups.hpp"
#include "support/rounding.hpp"
#include "support/toy_model.hpp"
#include "tessera/base/half.hpp"
#include "tessera/world/run.hpp"

namespace tessera::test::precision_test {
namespace {

/// The parameter for a master weight.
float rounded(float value, DType dtype) {
  switch (dtype) {
    case DType::bf16:
      return bfloat16{kernels::parameter_bits(value)}.to_float();
    case DType::fp16:
      return float16::from_float(value).to_float();
    default:
      return value;
  }
}

struct Case {
  const char* name;
  DType compute;
  DType gradient;
  std::optional<DType> small = {};  ///< of biases and scales
};
constexpr Case kCases[] = {
    {"fp32_bf16", DType::fp32, DType::bf16},
    {"bf16_fp32", DType::bf16, DType::fp32},
    {"bf16_bf16", DType::bf16, DType::bf16},
    {"fp16_fp32", DType::fp16, DType::fp32},
    {"fp16_fp16", DType::fp16, DType::fp16},
    {"fp32_fp16", DType::fp32, DType::fp16},
    {"bf16_with_fp32_biases", DType::bf16, DType::fp32, DType::fp32},
};

ToyRun run_of(const Case& precision, int ranks) {
  ToyRun run;
  run.ranks = ranks;
  run.steps = TESSERA_SANITIZED ? 15 : 50;
  run.toy.batch = 2;
  run.toy.small_dtype = precision.small;
  run.options.strategy = Strategy::ddp;
  run.options.compute = precision.compute;
  run.options.gradient = precision.gradient;
  return run;
}

class Precision : public ::testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(DTypes, Precision, ::testing::ValuesIn(kCases),
                         [](const auto& tested) { return std::string{tested.param.name}; });

TEST_P(Precision, FiftyStepsAreBitIdenticalUnderEveryStrategy) {
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

TEST_P(Precision, MicroBatchesAreBitIdenticalUnderEveryStrategy) {
  for (const AccumulateMode mode : {AccumulateMode::every, AccumulateMode::deferred}) {
    ToyRun run = run_of(GetParam(), 2);
    run.steps = 6;
    run.options.accumulate = 3;
    run.options.accumulate_mode = mode;
    const ToyOutcome expected = run_toy(run);
    for (const Strategy strategy : tried_strategies()) {
      run.options.strategy = strategy;
      run.options.shard_group = groups_of_one(strategy);
      EXPECT_EQ(difference(expected, run_toy(run)), "") << to_string(strategy);
    }
  }
}

TEST_P(Precision, ParametersAreTheRoundedMasters) {
  const Case& precision = GetParam();
  ToyRun run = run_of(precision, 3);
  run.steps = 5;
  run.options.strategy = Strategy::zero3;
  const ToyOutcome outcome = run_toy(run);
  std::size_t rounded_elems = 0;
  for (const auto& [name, parameter] : outcome.parameters) {
    const bool is_small = name.find("bias") != std::string::npos;
    const DType dtype = name == "head.bias" || !is_small
                            ? precision.compute
                            : precision.small.value_or(precision.compute);
    if (name.find("scale") != std::string::npos) {
      EXPECT_FALSE(outcome.masters.contains(name)) << "a frozen parameter has no master";
      continue;
    }
    const std::vector<float>& masters = outcome.masters.at(name);
    ASSERT_EQ(masters.size(), parameter.size());
    for (std::size_t i = 0; i < parameter.size(); ++i) {
      ASSERT_EQ(parameter[i], rounded(masters[i], dtype)) << name;
      rounded_elems += parameter[i] != masters[i] ? 1 : 0;
    }
  }
  EXPECT_EQ(rounded_elems > 0, precision.compute != DType::fp32);
}

// The purpose of fp32 masters: steps far below half a unit in the last place of bf16 add up.
TEST(MasterWeights, SmallStepsAreNotLost) {
  ToyRun run = run_of(kCases[1], 2);
  run.optimizer = AdamW{.lr = 1e-5F, .weight_decay = 0.0F};
  run.steps = 1;
  const auto first = run_toy(run).masters;
  run.steps = 12;
  const auto last = run_toy(run).masters;
  const auto largest_step = [&](const std::string& name) {
    float largest = 0.0F;
    for (std::size_t i = 0; i < first.at(name).size(); ++i) {
      largest = std::max(largest, std::abs(first.at(name)[i] - last.at(name)[i]));
    }
    return largest;
  };
  EXPECT_GT(largest_step("block.0.weight"), 5e-5F);
}

// Masters start from the initializer's fp32 values, not from the rounded parameters.
TEST(MasterWeights, StartFromTheInitializerInFull) {
  run_ranks(2, [](World& world) {
    ShardedModel model{world, {.strategy = Strategy::zero3, .compute = DType::bf16}};
    (void)model.add_unit("unit", {{"w", {300}}, {"frozen", {5}, false}});
    model.materialize(init::normal(3, 1.0F));
    std::vector<float> expected(300);
    init::fill_normal(3, 0, 0, 1.0F, expected);
    std::int64_t seen = 0;
    model.export_masters(
        [&](const ParameterInfo& info, std::int64_t first, std::span<const float> values) {
          EXPECT_EQ(info.name, "w");
          EXPECT_TRUE(std::equal(values.begin(), values.end(), expected.begin() + first));
          seen += std::ssize(values);
        });
    EXPECT_EQ(seen, world.rank() == 0 ? 192 : 108);  // shards of 192
    for (const auto& [name, values] : exported(model, StateTensor::parameters)) {
      if (name != "unit.w") { continue; }
      for (std::size_t i = 0; i < values.size(); ++i) {
        ASSERT_EQ(values[i], rounded(expected[i], DType::bf16));
      }
    }
  });
}

TEST(MasterWeights, TrainAsCloseToFp32AsTheirRoundingAllows) {
  const ToyOutcome wide = run_toy(run_of({"", DType::fp32, DType::fp32}, 2));
  for (const DType low : {DType::bf16, DType::fp16}) {
    const ToyOutcome narrow = run_toy(run_of({"", low, DType::fp32}, 2));
    EXPECT_NE(narrow.losses.back(), wide.losses.back());
    // Weights are rounded once, and a step's gradients with them: twice u, relative to what the
    // steps changed the loss by, at most the first loss.
    EXPECT_NEAR(narrow.losses.back(), wide.losses.back(),
                2 * unit_roundoff(low) * wide.losses.front());
  }
}

}  // namespace
}  // namespace tessera::test::precision_test
