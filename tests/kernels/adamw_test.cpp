#include "kernels/adamw/adamw.hpp"

#include "kernels/updates.hpp"

namespace tessera::kernels::adamw_test {
namespace {

using updates::at_update;

UpdateRun run_of(Floats& w, Floats& m, Floats& v, const Floats& g) {
  return {.master = w.data(),
          .gradient = g.data(),
          .first = m.data(),
          .second = v.data(),
          .elems = std::ssize(w)};
}

TEST(AdamWReference, FirstStepMovesByTheLearningRate) {
  Floats w{1.0F, -2.0F}, m(2, 0.0F), v(2, 0.0F);
  const Floats g{0.5F, -0.25F};
  const StepScalars scalars = at_update(1, 1.0F);
  reference::adamw(
      alone(run_of(w, m, v, g), AdamW{.lr = 0.1F, .eps = 1e-30F, .weight_decay = 0.0F}), &scalars,
      Stream{});
  // t = 1: m-hat / sqrt(v-hat) is the gradient's sign. 1 - 0.9 and 1 - 0.95 are off by 10 and 20 u.
  EXPECT_NEAR(w[0], 0.9F, roundings(40, 0.1) + roundings(2));
  EXPECT_NEAR(w[1], -1.9F, roundings(40, 0.1) + roundings(2, 2.0));
  EXPECT_NEAR(m[0], 0.05F, roundings(16, 0.05));
  EXPECT_NEAR(v[1], 0.05F * 0.0625F, roundings(24, 0.05 * 0.0625));
}

TEST(AdamWReference, DecayAloneShrinksTheWeight) {
  Floats w{2.0F}, m{0.0F}, v{0.0F};
  const Floats g{0.0F};
  const StepScalars scalars = at_update(3);
  reference::adamw(
      alone(run_of(w, m, v, g), AdamW{.lr = 0.5F, .eps = 1e-8F, .weight_decay = 0.25F}), &scalars,
      Stream{});
  EXPECT_EQ(w[0], 1.75F);  // 2 - 0.5 * 0.25 * 2
}

class AdamWKernels : public updates::UpdateTest {};
INSTANTIATE_TEST_SUITE_P(Backends, AdamWKernels, backends(), backend_name);

// 100 steps against the textbook in fp64, which forms m-hat and v-hat and shares no code with the
// kernel.
//
// Bound: u = 2^-24 is the unit roundoff. One step's update is lr q with |q| at most a few (here
// below 2). g, m, v, the root, the factors and the quotient have relative errors of at most about
// (4 + 3 / (1 - b2)) u = 64 u per step: rounding errors of v persist with weight b2 and sum to at
// most 3 u / (1 - b2). The last subtraction adds u |w|. 100 steps thus differ by at most 100 (2 *
// 64 lr + |w|) u; feedback through decay only shrinks it. Where m cancels, its absolute error
// scales with the gradients, which the same bound covers.
TEST_P(AdamWKernels, FollowFloat64OverAHundredSteps) {
  constexpr std::int64_t elems = 501;
  constexpr AdamW hyper{
      .lr = 1e-2F, .beta1 = 0.9F, .beta2 = 0.95F, .eps = 1e-8F, .weight_decay = 0.1F};
  const auto [start, weight] =
      follow(updates::rule("adamw", 2, hyper, &reference::adamw, &Table::adamw), elems, 100);
  std::vector<double> w(start.weight.begin(), start.weight.end()), m(elems, 0.0), v(elems, 0.0);
  const double lr = hyper.lr, b1 = hyper.beta1, b2 = hyper.beta2;
  for (int t = 1; t <= 100; ++t) {
    const Floats& gradient = start.gradients[static_cast<std::size_t>(t - 1)];
    for (std::size_t i = 0; i < w.size(); ++i) {
      const double g = 0.5 * static_cast<double>(gradient[i]);
      m[i] = b1 * m[i] + (1 - b1) * g;
      v[i] = b2 * v[i] + (1 - b2) * g * g;
      const double m_hat = m[i] / (1 - std::pow(b1, t));
      const double v_hat = v[i] / (1 - std::pow(b2, t));
      w[i] -= lr * (m_hat / (std::sqrt(v_hat) + static_cast<double>(hyper.eps)) +
                    static_cast<double>(hyper.weight_decay) * w[i]);
    }
  }
  for (std::size_t i = 0; i < w.size(); ++i) {
    const double bound = 100 * (2 * 64 * lr + std::abs(w[i]) + 1) * std::ldexp(1.0, -24);
    ASSERT_NEAR(static_cast<double>(weight[i]), w[i], bound) << "element " << i;
  }
}

}  // namespace
}  // namespace tessera::kernels::adamw_test
