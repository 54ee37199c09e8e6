// Parameter groups with their own rate and decay.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "support/groups.hpp"
#include "support/rounding.hpp"
#include "support/toy_model.hpp"
#include "tessera/world/run.hpp"

namespace tessera::test::parameter_groups_test {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kElems = 150;

bool is_of(const ParameterInfo& info, const std::string& name) {
  return info.name == name;
}
auto named(const std::string& name) {
  return [name](const ParameterInfo& info) { return is_of(info, name); };
}

/// Two matrices and a bias in one unit. Gradients are a fixed function of index and step, so only
/// the optimizer makes parameters differ.
struct Trainer {
  explicit Trainer(World& world, const ModelOptions& options = {}) : model{world, options} {
    unit = model.add_unit("unit", {{"a", {kElems, 1}}, {"b", {kElems, 1}}, {"bias", {3}}});
    model.materialize(init::normal(2, 1.0F));
  }

  void step(int number) {
    (void)model.forward(unit);
    {
      const auto scope = model.backward(unit);
      for (const char* name : {"a", "b", "bias"}) {
        float* const gradient = scope.grad(name);
        for (std::int64_t i = 0; i < scope.grad(name).shape().elems(); ++i) {
          gradient[i] =
              std::ldexp(static_cast<float>((i * 7 + std::int64_t{number} * 5) % 31 - 15), -4);
        }
      }
    }
    model.step();
  }

  ShardedModel model;
  Unit unit;
};

std::map<std::string, std::vector<float>> trained(const Optimizer& optimizer,
                                                  const OptimizerOptions& options,
                                                  Strategy strategy = Strategy::zero3,
                                                  bool scheduled = false) {
  std::map<std::string, std::vector<float>> result;
  run_ranks(2, [&](World& world) {
    Trainer trainer{world, {.strategy = strategy, .shard_group = half_of(world.size(), strategy)}};
    trainer.model.optimize_with(optimizer, options);
    for (int number = 0; number < 6; ++number) {
      if (scheduled) { trainer.model.set_learning_rate(0.01F / static_cast<float>(1 + number)); }
      trainer.step(number);
    }
    auto parameters = exported(trainer.model, StateTensor::parameters);
    if (world.rank() == 0) { result = std::move(parameters); }
  });
  return result;
}

const std::vector<ParameterGroup> kGroups{
    {.name = "slow", .contains = named("b"), .lr_scale = 0.25F, .weight_decay = 0.5F},
    {.name = "biases", .contains = named("bias"), .lr_scale = 2.0F}};

// Without clipping each group trains as if its optimizer were the only one.
TEST(ParameterGroups, EachTrainsAsUnderItsOwnOptimizer) {
  const float lr = 0.01F;
  for (const Strategy strategy : all_strategies()) {
    const auto grouped =
        trained(AdamW{.lr = lr, .weight_decay = 0.1F}, {.groups = kGroups}, strategy);
    const auto plain = trained(AdamW{.lr = lr, .weight_decay = 0.1F}, {});
    const auto slow = trained(AdamW{.lr = lr * 0.25F, .weight_decay = 0.5F}, {});
    const auto fast = trained(AdamW{.lr = lr * 2.0F, .weight_decay = 0.1F}, {});
    EXPECT_EQ(grouped.at("unit.a"), plain.at("unit.a"));
    EXPECT_EQ(grouped.at("unit.b"), slow.at("unit.b"));
    EXPECT_EQ(grouped.at("unit.bias"), fast.at("unit.bias")) << "which does not decay";
    EXPECT_NE(slow.at("unit.b"), plain.at("unit.b"));
    EXPECT_NE(fast.at("unit.bias"), plain.at("unit.bias"));
  }
}

TEST(ParameterGroups, FollowTheScheduleAtTheirOwnScale) {
  const auto grouped = trained(SGD{}, {.groups = kGroups}, Strategy::zero2, true);
  std::vector<float> expected(3);
  init::fill_normal(2, 2, 0, 1.0F, expected);
  std::vector<double> momentum(3, 0.0);
  std::vector<double> weights(expected.begin(), expected.end());
  for (int number = 0; number < 6; ++number) {
    for (int i = 0; i < 3; ++i) {
      const auto at = static_cast<std::size_t>(i);
      momentum[at] = 0.9 * momentum[at] + std::ldexp((i * 7 + number * 5) % 31 - 15, -4);
      weights[at] -= 2.0 * 0.01 / (1 + number) * momentum[at];
    }
  }
  // Six steps of three roundings each, of a weight and of a momentum that reaches 4.
  const double bound = 6 * 3 * test::unit_roundoff(DType::fp32);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_NEAR(static_cast<double>(grouped.at("unit.bias")[i]), weights[i],
                bound * (std::abs(weights[i]) + 1));
  }
}

TEST(ParameterGroups, AWeightDecayOfTheGroupHoldsForItsBiasesToo) {
  const auto with = [](std::optional<float> decay) {
    return trained(SGD{.weight_decay = 0.1F},
                   {.groups = {{.name = "all",
                                .contains = [](const ParameterInfo&) { return true; },
                                .weight_decay = decay}}});
  };
  const auto rule = trained(SGD{.weight_decay = 0.1F}, {});
  EXPECT_EQ(with({}), rule);
  EXPECT_NE(with(0.1F).at("unit.bias"), rule.at("unit.bias"));
  EXPECT_EQ(with(0.1F).at("unit.a"), rule.at("unit.a"));
  EXPECT_NE(with(0.0F).at("unit.a"), rule.at("unit.a"));
}

TEST(ParameterGroups, TheFirstGroupThatMatchesAParameterOwnsIt) {
  const auto all = [](const ParameterInfo&) { return true; };
  const auto grouped =
      trained(SGD{.lr = 0.01F}, {.groups = {{.name = "b", .contains = named("b"), .lr_scale = 0.0F},
                                            {.name = "rest", .contains = all, .lr_scale = 3.0F}}});
  std::vector<float> initial(kElems);
  init::fill_normal(2, 1, 0, 1.0F, initial);
  EXPECT_EQ(grouped.at("unit.b"), initial) << "a rate of 0";
  EXPECT_EQ(grouped.at("unit.a"), trained(SGD{.lr = 0.01F * 3.0F}, {}).at("unit.a"));
}

std::string refusal(const OptimizerOptions& options) {
  std::string text = "accepted";
  run_ranks(1, [&](World& world) {
    Trainer trainer{world};
    try {
      trainer.model.optimize_with(AdamW{}, options);
    } catch (const Error& error) { text = error.what(); }
  });
  return text;
}

TEST(ParameterGroups, OneWithoutAParameterIsRefusedByName) {
  EXPECT_THAT(refusal({.groups = {{.name = "typo", .contains = named("wieght")}}}),
              HasSubstr("group 'typo' contains no trainable parameter"));
  EXPECT_THAT(refusal({.groups = {{.name = "first", .contains = named("a")},
                                  {.name = "again", .contains = named("a")}}}),
              HasSubstr("group 'again'"));
}

TEST(ParameterGroups, BadValuesAreRefusedByName) {
  EXPECT_THAT(refusal({.groups = {{.name = "", .contains = named("a")}}}), HasSubstr("a name"));
  EXPECT_THAT(refusal({.groups = {{.name = "g"}}}), HasSubstr("does not say what it contains"));
  EXPECT_THAT(refusal({.groups = {{.name = "g", .contains = named("a"), .lr_scale = -1.0F}}}),
              HasSubstr("`lr_scale` of group 'g' must be"));
  EXPECT_THAT(refusal({.groups = {{.name = "g", .contains = named("a"), .weight_decay = -1.0F}}}),
              HasSubstr("`weight_decay` of group 'g' must be"));
}

TEST(ParameterGroups, RanksThatGroupDifferentlyLearnTheFirstDifference) {
  std::string text;
  try {
    run_ranks(2, [](World& world) {
      Trainer trainer{world};
      const char* const name = world.rank() == 0 ? "a" : "b";
      trainer.model.optimize_with(
          AdamW{}, {.groups = {{.name = "g", .contains = named(name), .lr_scale = 0.5F}}});
    });
  } catch (const ContractError& error) { text = error.what(); }
  EXPECT_THAT(text, HasSubstr("'unit.a rate times 0.5 weight_decay 0.1' on rank 0"));
}

}  // namespace
}  // namespace tessera::test::parameter_groups_test
