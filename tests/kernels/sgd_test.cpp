#include "kernels/sgd/sgd.hpp"

#include "kernels/support.hpp"

namespace tessera::kernels::sgd_test {
namespace {

TEST(SGDReference, TwoStepsByHand) {
  Floats w{1.0F}, u{0.0F};
  const Floats g{4.0F};
  StepScalars scalars;
  scalars.gradient_factor = 0.5F;
  const SGD hyper{.lr = 0.25F, .momentum = 0.5F, .weight_decay = 1.0F};
  reference::sgd(
      alone({.master = w.data(), .gradient = g.data(), .first = u.data(), .elems = 1}, hyper),
      &scalars, Stream{});
  EXPECT_EQ(u[0], 3.0F);   // 4 * 0.5 + 1 * 1
  EXPECT_EQ(w[0], 0.25F);  // 1 - 0.25 * 3
  reference::sgd(
      alone({.master = w.data(), .gradient = g.data(), .first = u.data(), .elems = 1}, hyper),
      &scalars, Stream{});
  EXPECT_EQ(u[0], 3.75F);     // 0.5 * 3 + (2 + 0.25)
  EXPECT_EQ(w[0], -0.6875F);  // 0.25 - 0.25 * 3.75
}

}  // namespace
}  // namespace tessera::kernels::sgd_test
