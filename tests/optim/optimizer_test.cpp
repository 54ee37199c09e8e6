#include "tessera/optim/optimizer.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "tessera/base/error.hpp"

namespace tessera::optimizer_test {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

std::string refusal(const Optimizer& optimizer) {
  try {
    validate(optimizer);
  } catch (const ContractError& error) { return error.what(); }
  return "accepted";
}

TEST(Optimizer, StateIsTwoValuesForAdamW) {
  EXPECT_EQ(state_count(AdamW{}), 2);
}

TEST(Optimizer, StateIsTwoValuesForAdamAndOneForLion) {
  EXPECT_EQ(state_count(Adam{}), 2);
  EXPECT_EQ(state_count(Lion{}), 1);
  EXPECT_EQ(state_count(CustomOptimizer{.states = 5}), 5);
}

TEST(Optimizer, IsDescribedByItsRuleAndValues) {
  EXPECT_EQ(describe(AdamW{}), "AdamW lr 0.0003 beta1 0.9 beta2 0.95 eps 1e-08 weight_decay 0.1");
  EXPECT_EQ(describe(Adam{}), "Adam lr 0.001 beta1 0.9 beta2 0.999 eps 1e-08 weight_decay 0");
  EXPECT_EQ(describe(Lion{}), "Lion lr 0.0001 beta1 0.9 beta2 0.99 weight_decay 0");
  EXPECT_EQ(describe(SGD{}), "SGD lr 0.01 momentum 0.9 weight_decay 0");
  EXPECT_EQ(describe(CustomOptimizer{.name = "mine", .states = 1}),
            "custom mine states 1 lr 0.001 weight_decay 0");
}

TEST(Optimizer, StateOfSgdIsItsMomentum) {
  EXPECT_EQ(state_count(SGD{.momentum = 0.9F}), 1);
  EXPECT_EQ(state_count(SGD{.momentum = 0.0F}), 0);
}

TEST(Optimizer, AcceptsDefaultsAndTheEdgesOfTheRanges) {
  EXPECT_EQ(refusal(AdamW{}), "accepted");
  EXPECT_EQ(refusal(SGD{}), "accepted");
  EXPECT_EQ(refusal(AdamW{.lr = 0.0F, .beta1 = 0.0F, .beta2 = 0.0F, .weight_decay = 0.0F}),
            "accepted");
  EXPECT_EQ(refusal(SGD{.lr = 0.0F, .momentum = 0.0F, .weight_decay = 0.0F}), "accepted");
}

TEST(Optimizer, RefusesEachValueOutsideItsRangeByName) {
  struct Case {
    Optimizer optimizer;
    const char* name;
  };
  std::vector<Case> cases;
  for (const float bad : {kNaN, kInf, -kInf, -1.0F}) {
    cases.push_back({AdamW{.lr = bad}, "lr"});
    cases.push_back({AdamW{.beta1 = bad}, "beta1"});
    cases.push_back({AdamW{.beta2 = bad}, "beta2"});
    cases.push_back({AdamW{.eps = bad}, "eps"});
    cases.push_back({AdamW{.weight_decay = bad}, "weight_decay"});
    cases.push_back({Adam{.lr = bad}, "lr"});
    cases.push_back({Adam{.beta1 = bad}, "beta1"});
    cases.push_back({Adam{.beta2 = bad}, "beta2"});
    cases.push_back({Adam{.eps = bad}, "eps"});
    cases.push_back({Adam{.weight_decay = bad}, "weight_decay"});
    cases.push_back({Lion{.lr = bad}, "lr"});
    cases.push_back({Lion{.beta1 = bad}, "beta1"});
    cases.push_back({Lion{.beta2 = bad}, "beta2"});
    cases.push_back({Lion{.weight_decay = bad}, "weight_decay"});
    cases.push_back({SGD{.lr = bad}, "lr"});
    cases.push_back({SGD{.momentum = bad}, "momentum"});
    cases.push_back({SGD{.weight_decay = bad}, "weight_decay"});
  }
  cases.push_back({AdamW{.beta1 = 1.0F}, "beta1"});
  cases.push_back({AdamW{.beta2 = 1.0F}, "beta2"});
  cases.push_back({AdamW{.eps = 0.0F}, "eps"});
  cases.push_back({SGD{.momentum = 1.0F}, "momentum"});
  for (const Case& c : cases) {
    EXPECT_THAT(refusal(c.optimizer),
                testing::StartsWith("optimizer: `" + std::string{c.name} + "`"));
  }
}

TEST(Optimizer, TheRefusalShowsTheValue) {
  EXPECT_EQ(refusal(SGD{.momentum = 1.5F}),
            "optimizer: `momentum` must be a finite number in [0, 1), but is 1.5");
}

TEST(OptimizerOptions, NarrowMomentsAreOnlyWhereTheRuleKeepsSome) {
  const auto refusal_of = [](const Optimizer& optimizer, MomentFormat moments) -> std::string {
    try {
      validate({.moments = moments}, optimizer);
    } catch (const ConfigError& error) { return error.what(); }
    return "accepted";
  };
  EXPECT_EQ(refusal_of(SGD{.momentum = 0.0F}, MomentFormat::fp32), "accepted");
  for (const MomentFormat narrow : {MomentFormat::bf16, MomentFormat::int8}) {
    EXPECT_EQ(refusal_of(AdamW{}, narrow), "accepted");
    EXPECT_EQ(refusal_of(Lion{}, narrow), "accepted");
    EXPECT_EQ(refusal_of(SGD{.lr = 1.0F, .momentum = 0.0F}, narrow),
              "`moments` " + std::string{to_string(narrow)} +
                  " has no effect, because SGD lr 1 momentum 0 weight_decay 0 keeps none; leave it "
                  "at fp32");
    EXPECT_THAT(refusal_of(CustomOptimizer{.name = "own"}, narrow), testing::HasSubstr("'own'"));
  }
}

TEST(Optimizer, MatricesDecayAndVectorsDoNot) {
  EXPECT_TRUE(decays_by_rank("h.0.weight", Shape{3, 4}));
  EXPECT_TRUE(decays_by_rank("conv.weight", Shape{8, 3, 3, 3}));
  EXPECT_FALSE(decays_by_rank("h.0.bias", Shape{4}));
  EXPECT_FALSE(decays_by_rank("scale", Shape{}));
  EXPECT_TRUE(OptimizerOptions{}.decays("h.0.weight", Shape{3, 4}));
}

}  // namespace
}  // namespace tessera::optimizer_test
