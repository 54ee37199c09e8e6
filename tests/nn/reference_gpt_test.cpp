// Finite differences in float64 check the reference, without library code.
#include "support/reference_gpt.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

namespace tessera::reference::reference_gpt_test {
namespace {

constexpr nn::DecoderConfig kConfig{.layers = 2, .hidden = 12, .heads = 3, .vocab = 19, .seq = 7};

struct Problem {
  Tensors weights = gpt_zeros(kConfig);
  std::vector<std::int32_t> inputs;
  std::vector<std::int32_t> targets;
};

// Weights far from their initial values, so that no path through the model is negligible.
Problem problem(std::int64_t batch) {
  std::mt19937 random{7};
  std::normal_distribution<double> normal{0.0, 0.4};
  std::uniform_int_distribution<std::int32_t> token{0,
                                                    static_cast<std::int32_t>(kConfig.vocab) - 1};
  Problem p;
  for (auto& [name, tensor] : p.weights) {
    for (double& value : tensor.reshaped()) { value = normal(random); }
    if (name.find("ln_") != std::string::npos && name.ends_with("weight")) {
      tensor.array() += 1.0;
    }
  }
  for (std::int64_t i = 0; i < batch * kConfig.seq; ++i) {
    p.inputs.push_back(token(random));
    p.targets.push_back(token(random));
  }
  return p;
}

constexpr double kStep = 1e-5;
// Truncation, step^2 / 6 times a third derivative below 6, and the rounding of two losses below 5:
// 100 roundings of 2^-53 / step.
constexpr double kSlopeBound = kStep * kStep + 100 * 0x1p-53 * 5 / kStep;

double central_difference(Problem& p, double& weight) {
  const double before = weight;
  weight = before + kStep;
  const double up = gpt_loss(kConfig, p.weights, p.inputs, p.targets);
  weight = before - kStep;
  const double down = gpt_loss(kConfig, p.weights, p.inputs, p.targets);
  weight = before;
  return (up - down) / (2 * kStep);
}

TEST(ReferenceGPT, GradientOfEveryTensorIsTheSlopeOfTheLoss) {
  Problem p = problem(3);
  const Tensors gradients = gpt_gradients(kConfig, p.weights, p.inputs, p.targets);
  ASSERT_EQ(gradients.size(), p.weights.size());
  for (auto& [name, tensor] : p.weights) {
    const Matrix& gradient = gradients.at(name);
    ASSERT_GT(gradient.norm(), 1e-4) << name << ": nothing to compare";
    const Eigen::Index stride = std::max<Eigen::Index>(1, tensor.size() / 12);
    for (Eigen::Index i = 0; i < tensor.size(); i += stride) {
      EXPECT_NEAR(gradient.data()[i], central_difference(p, tensor.data()[i]),
                  kSlopeBound * (1.0 + gradient.cwiseAbs().maxCoeff()))
          << name << "[" << i << "]";
    }
  }
}

TEST(ReferenceGPT, ZeroWeightsGiveTheUniformLoss) {
  const Problem p = problem(1);
  EXPECT_NEAR(gpt_loss(kConfig, gpt_zeros(kConfig), p.inputs, p.targets),
              std::log(static_cast<double>(kConfig.vocab)), 1e-12);  // bound: fp64
}

TEST(ReferenceGPT, ATokenDoesNotSeeLaterTokens) {
  Problem p = problem(1);
  const Matrix before = gpt_logits(kConfig, p.weights, p.inputs);
  p.inputs[4] = (p.inputs[4] + 1) % static_cast<std::int32_t>(kConfig.vocab);
  const Matrix after = gpt_logits(kConfig, p.weights, p.inputs);
  EXPECT_EQ(before.topRows(4), after.topRows(4));
  for (Eigen::Index t = 4; t < kConfig.seq; ++t) {
    EXPECT_GT((before.row(t) - after.row(t)).norm(), 1e-6) << "position " << t;
  }
}

// Worked by hand: softmax over [0, ln 3] is [1/4, 3/4].
TEST(ReferenceGPT, CrossEntropyOfTwoClasses) {
  Matrix logits(1, 2);
  logits << 0.0, std::log(3.0);
  const std::vector<std::int32_t> target{0};
  EXPECT_NEAR(cross_entropy(logits, target), std::log(4.0), 1e-15);         // bound: fp64
  EXPECT_NEAR(cross_entropy_backward(logits, target)(0, 0), -0.75, 1e-15);  // bound: fp64
  EXPECT_NEAR(cross_entropy_backward(logits, target)(0, 1), 0.75, 1e-15);   // bound: fp64
}

}  // namespace
}  // namespace tessera::reference::reference_gpt_test
