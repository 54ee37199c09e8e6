#include "kernels/lion/lion.hpp"

#include "kernels/updates.hpp"

namespace tessera::kernels::lion_test {
namespace {

UpdateRun run_of(Floats& w, Floats& m, const Floats& g) {
  return {.master = w.data(), .gradient = g.data(), .first = m.data(), .elems = std::ssize(w)};
}

// Powers of two throughout, so that every operation is exact.
TEST(LionReference, TwoStepsByHand) {
  Floats w{1.0F, 1.0F, 1.0F}, m{0.0F, 0.0F, 0.0F};
  const Lion hyper{.lr = 0.25F, .beta1 = 0.5F, .beta2 = 0.75F, .weight_decay = 0.5F};
  StepScalars scalars;
  scalars.gradient_factor = 0.5F;
  const Floats g1{8.0F, -4.0F, 0.0F};
  reference::lion(alone(run_of(w, m, g1), hyper), &scalars, Stream{});
  EXPECT_EQ(m, (Floats{1.0F, -0.5F, 0.0F}));  // 0.25 * 4, 0.25 * -2
  // 1 - 0.25 * (sign + 0.5)
  EXPECT_EQ(w, (Floats{0.625F, 1.125F, 0.875F}));
  const Floats g2{-1.0F, 1.5F, 2.0F};
  reference::lion(alone(run_of(w, m, g2), hyper), &scalars, Stream{});
  EXPECT_EQ(m, (Floats{0.625F, -0.1875F, 0.25F}));
  // u = 0.5 * 1 - 0.25 > 0, -0.25 + 0.375 > 0, 0.5 > 0
  EXPECT_EQ(w,
            (Floats{0.625F - 0.25F * 1.3125F, 1.125F - 0.25F * 1.5625F, 0.875F - 0.25F * 1.4375F}));
}

class LionKernels : public updates::UpdateTest {};
INSTANTIATE_TEST_SUITE_P(Backends, LionKernels, backends(), backend_name);

// The sign decides, so fp32 and fp64 diverge where u is within rounding of 0: those few elements
// are skipped.
TEST_P(LionKernels, FollowFloat64OverAHundredSteps) {
  constexpr std::int64_t elems = 501;
  constexpr Lion hyper{.lr = 1e-2F, .weight_decay = 0.1F};
  const auto [start, weight] =
      follow(updates::rule("lion", 1, hyper, &reference::lion, &Table::lion), elems, 100);
  std::vector<double> w(start.weight.begin(), start.weight.end()), m64(elems, 0.0);
  std::vector<bool> doubtful(elems, false);
  const double lr = hyper.lr, b1 = hyper.beta1, b2 = hyper.beta2, wd = hyper.weight_decay;
  for (int t = 1; t <= 100; ++t) {
    const Floats& gradient = start.gradients[static_cast<std::size_t>(t - 1)];
    for (std::size_t i = 0; i < w.size(); ++i) {
      const double g = 0.5 * static_cast<double>(gradient[i]);
      const double u = b1 * m64[i] + (1 - b1) * g;
      if (std::abs(u) < roundings(16)) { doubtful[i] = true; }
      w[i] -= lr * ((u > 0 ? 1.0 : -1.0) + wd * w[i]);
      m64[i] = b2 * m64[i] + (1 - b2) * g;
    }
  }
  EXPECT_LT(std::count(doubtful.begin(), doubtful.end(), true), 10);
  for (std::size_t i = 0; i < w.size(); ++i) {
    if (doubtful[i]) { continue; }
    // Each step rounds a few times, relative to |w| + lr.
    ASSERT_NEAR(static_cast<double>(weight[i]), w[i], 100 * 4 * (std::abs(w[i]) + 2) * 0x1p-24)
        << "element " << i;
  }
}

}  // namespace
}  // namespace tessera::kernels::lion_test
