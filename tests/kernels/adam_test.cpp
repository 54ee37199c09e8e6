#include "kernels/adam/adam.hpp"

#include "kernels/updates.hpp"

namespace tessera::kernels::adam_test {
namespace {

using updates::at_update;

UpdateRun run_of(Floats& w, Floats& m, Floats& v, const Floats& g) {
  return {.master = w.data(),
          .gradient = g.data(),
          .first = m.data(),
          .second = v.data(),
          .elems = std::ssize(w)};
}

// Powers of two throughout, so that every operation is exact; beta 0.5, decay 0.5.
TEST(AdamReference, TwoStepsByHand) {
  Floats w{2.0F}, m{0.0F}, v{0.0F};
  const Adam hyper{.lr = 0.25F, .beta1 = 0.5F, .beta2 = 0.5F, .eps = 1e-30F, .weight_decay = 0.5F};
  const Floats g1{2.0F};
  StepScalars scalars = at_update(1, 0.5F);
  reference::adam(alone(run_of(w, m, v, g1), hyper), &scalars, Stream{});
  EXPECT_EQ(m[0], 1.0F);  // g = 2 * 0.5 + 0.5 * 2 = 2
  EXPECT_EQ(v[0], 2.0F);  // 0.5 * 4
  // m-hat 2, v-hat 4: down by one learning rate, of 8 operations, and a subtraction
  const double most = roundings(8, 0.25) + roundings(1, 1.75);
  EXPECT_NEAR(w[0], 1.75F, most);
  w[0] = 1.75F;
  const Floats g2{-1.75F};
  scalars = at_update(2, 1.0F);
  reference::adam(alone(run_of(w, m, v, g2), hyper), &scalars, Stream{});
  EXPECT_EQ(m[0], 0.0625F);     // g = -1.75 + 0.875 = -0.875; 0.5 * 1 - 0.5 * 0.875
  EXPECT_EQ(v[0], 1.3828125F);  // 0.5 * 2 + 0.5 * 0.765625
  // m-hat = 0.0625 / 0.75, v-hat = 1.3828125 / 0.75
  EXPECT_NEAR(w[0], 1.75 - 0.25 * (0.0625 / 0.75) / std::sqrt(1.3828125 / 0.75), most);
}

TEST(AdamReference, DecayGoesThroughTheMoments) {
  Floats w{4.0F}, m{0.0F}, v{0.0F};
  const Floats g{0.0F};
  const StepScalars scalars = at_update(1, 1.0F);
  reference::adam(alone(run_of(w, m, v, g), Adam{.lr = 0.5F, .eps = 1e-30F, .weight_decay = 0.1F}),
                  &scalars, Stream{});
  // One learning rate, whatever the size of the decay. 1 - 0.9 is off by 10 u.
  EXPECT_NEAR(w[0], 3.5F, roundings(24, 0.5) + roundings(1, 3.5));
  EXPECT_NEAR(m[0], 0.04F, roundings(16, 0.04));
}

class AdamKernels : public updates::UpdateTest {};
INSTANTIATE_TEST_SUITE_P(Backends, AdamKernels, backends(), backend_name);

// The bound is AdamW's, derived in its test. Here the decay is part of the gradient: two terms of
// about equal size cancel, which at most doubles g's relative error.
TEST_P(AdamKernels, FollowFloat64OverAHundredSteps) {
  constexpr std::int64_t elems = 501;
  constexpr Adam hyper{.lr = 1e-2F, .beta2 = 0.95F, .weight_decay = 0.1F};
  const auto [start, weight] =
      follow(updates::rule("adam", 2, hyper, &reference::adam, &Table::adam), elems, 100);
  std::vector<double> w(start.weight.begin(), start.weight.end()), m64(elems, 0.0), v64(elems, 0.0);
  const double lr = hyper.lr, b1 = hyper.beta1, b2 = hyper.beta2, wd = hyper.weight_decay;
  for (int t = 1; t <= 100; ++t) {
    const Floats& gradient = start.gradients[static_cast<std::size_t>(t - 1)];
    for (std::size_t i = 0; i < w.size(); ++i) {
      const double g = 0.5 * static_cast<double>(gradient[i]) + wd * w[i];
      m64[i] = b1 * m64[i] + (1 - b1) * g;
      v64[i] = b2 * v64[i] + (1 - b2) * g * g;
      w[i] -= lr * (m64[i] / (1 - std::pow(b1, t))) /
              (std::sqrt(v64[i] / (1 - std::pow(b2, t))) + static_cast<double>(hyper.eps));
    }
  }
  for (std::size_t i = 0; i < w.size(); ++i) {
    const double bound = 100 * (4 * 64 * lr + std::abs(w[i]) + 1) * std::ldexp(1.0, -24);
    ASSERT_NEAR(static_cast<double>(weight[i]), w[i], bound) << "element " << i;
  }
}

}  // namespace
}  // namespace tessera::kernels::adam_test
