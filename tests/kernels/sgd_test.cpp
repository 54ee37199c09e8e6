#include "kernels/sgd/sgd.hpp"

#include "kernels/support.hpp"

namespace tessera::kernels {
namespace {

struct State {
  Floats weight, momentum, gradient;

  explicit State(std::int64_t elems)
      : weight{random_floats(elems, 1)},
        momentum{random_floats(elems, 2)},
        gradient{random_floats(elems, 3)} {}
  UpdateRun run(std::int64_t first, std::int64_t elems, bool with_momentum) {
    return {.master = weight.data() + first,
            .gradient = gradient.data() + first,
            .first = with_momentum ? momentum.data() + first : nullptr,
            .elems = elems};
  }
  UpdateRun all(bool with_momentum) { return run(0, std::ssize(weight), with_momentum); }
  friend bool operator==(const State& a, const State& b) {
    return same_bits(a.weight, b.weight) && same_bits(a.momentum, b.momentum);
  }
};

constexpr SGD kHyper{.lr = 0.1F, .momentum = 0.9F, .weight_decay = 0.01F};

TEST(SGDReference, TwoStepsByHand) {
  Floats w{1.0F}, u{0.0F};
  const Floats g{4.0F};
  StepScalars scalars;
  scalars.gradient_factor = 0.5F;
  const SGD hyper{.lr = 0.25F, .momentum = 0.5F, .weight_decay = 1.0F};
  reference::sgd({.master = w.data(), .gradient = g.data(), .first = u.data(), .elems = 1}, hyper,
                 &scalars, Stream{});
  EXPECT_EQ(u[0], 3.0F);   // 4 * 0.5 + 1 * 1
  EXPECT_EQ(w[0], 0.25F);  // 1 - 0.25 * 3
  reference::sgd({.master = w.data(), .gradient = g.data(), .first = u.data(), .elems = 1}, hyper,
                 &scalars, Stream{});
  EXPECT_EQ(u[0], 3.75F);     // 0.5 * 3 + (2 + 0.25)
  EXPECT_EQ(w[0], -0.6875F);  // 0.25 - 0.25 * 3.75
}

using SGDKernelTest = KernelTest;

TEST_F(SGDKernelTest, MatchesReferenceToTheBit) {
  StepScalars scalars;
  scalars.gradient_factor = 0.3F;
  for (const bool with_momentum : {false, true}) {
    for (const std::int64_t elems : kSizes) {
      SCOPED_TRACE(elems);
      State expected{elems};
      State actual{elems};
      reference::sgd(expected.all(with_momentum), kHyper, &scalars, Stream{});
      cpu_.sgd(actual.all(with_momentum), kHyper, &scalars, stream());
      EXPECT_EQ(expected, actual);
    }
  }
}

TEST_F(SGDKernelTest, ShardsGiveTheSameBitsAsTheWhole) {
  const StepScalars scalars;
  for (const bool with_momentum : {false, true}) {
    State whole{5000};
    cpu_.sgd(whole.all(with_momentum), kHyper, &scalars, stream());
    for (unsigned seed = 0; seed < 10; ++seed) {
      SCOPED_TRACE(seed);
      State sharded{5000};
      const auto cuts = random_cuts(5000, 7, seed);
      for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
        cpu_.sgd(sharded.run(cuts[i], cuts[i + 1] - cuts[i], with_momentum), kHyper, &scalars,
                 stream());
      }
      EXPECT_EQ(whole, sharded);
    }
  }
}

TEST_F(SGDKernelTest, ARefusedStepLeavesEverythingUntouched) {
  StepScalars scalars;
  scalars.apply = 0;
  State before{100};
  before.gradient[50] = kInfinity;
  State after = before;
  cpu_.sgd(after.all(true), kHyper, &scalars, stream());
  reference::sgd(after.all(false), kHyper, &scalars, Stream{});
  EXPECT_EQ(before, after);
}

}  // namespace
}  // namespace tessera::kernels
