#include "kernels/adamw/adamw.hpp"

#include "kernels/support.hpp"

namespace tessera::kernels {
namespace {

struct State {
  Floats weight, m, v, gradient;

  explicit State(std::int64_t elems)
      : weight{random_floats(elems, 1)},
        m{random_floats(elems, 2, 0.1F)},
        v{random_floats(elems, 3, 0.1F)},
        gradient{random_floats(elems, 4)} {
    for (float& value : v) { value = std::abs(value); }
  }
  UpdateRun run(std::int64_t first, std::int64_t elems) {
    return {.master = weight.data() + first,
            .gradient = gradient.data() + first,
            .first = m.data() + first,
            .second = v.data() + first,
            .elems = elems};
  }
  UpdateRun all() { return run(0, std::ssize(weight)); }
  friend bool operator==(const State& a, const State& b) {
    return same_bits(a.weight, b.weight) && same_bits(a.m, b.m) && same_bits(a.v, b.v);
  }
};

UpdateRun run_of(Floats& w, Floats& m, Floats& v, const Floats& g) {
  return {.master = w.data(),
          .gradient = g.data(),
          .first = m.data(),
          .second = v.data(),
          .elems = std::ssize(w)};
}

StepScalars at_update(std::int64_t t, float factor = 0.37F) {
  StepScalars scalars;
  scalars.updates = t;
  scalars.gradient_factor = factor;
  return scalars;
}

TEST(AdamWReference, FirstStepMovesByTheLearningRate) {
  Floats w{1.0F, -2.0F}, m(2, 0.0F), v(2, 0.0F);
  const Floats g{0.5F, -0.25F};
  const StepScalars scalars = at_update(1, 1.0F);
  reference::adamw(run_of(w, m, v, g), {.lr = 0.1F, .eps = 1e-30F, .weight_decay = 0.0F}, &scalars,
                   Stream{});
  EXPECT_NEAR(w[0], 0.9F, 1e-6F);  // t = 1: m-hat / sqrt(v-hat) is the gradient's sign
  EXPECT_NEAR(w[1], -1.9F, 1e-6F);
  EXPECT_NEAR(m[0], 0.05F, 1e-7F);
  EXPECT_NEAR(v[1], 0.05F * 0.0625F, 1e-8F);
}

TEST(AdamWReference, DecayAloneShrinksTheWeight) {
  Floats w{2.0F}, m{0.0F}, v{0.0F};
  const Floats g{0.0F};
  const StepScalars scalars = at_update(3);
  reference::adamw(run_of(w, m, v, g), {.lr = 0.5F, .eps = 1e-8F, .weight_decay = 0.25F}, &scalars,
                   Stream{});
  EXPECT_EQ(w[0], 1.75F);  // 2 - 0.5 * 0.25 * 2
}

using AdamWKernelTest = KernelTest;

TEST_F(AdamWKernelTest, MatchesReferenceToTheBit) {
  const StepScalars scalars = at_update(7);
  for (const std::int64_t elems : kSizes) {
    SCOPED_TRACE(elems);
    State expected{elems};
    State actual{elems};
    reference::adamw(expected.all(), AdamW{}, &scalars, Stream{});
    cpu_.adamw(actual.all(), AdamW{}, &scalars, stream());
    EXPECT_EQ(expected, actual);
  }
}

TEST_F(AdamWKernelTest, EveryStartGivesTheSameBits) {
  const StepScalars scalars = at_update(2);
  for (std::int64_t first = 0; first < 17; ++first) {
    SCOPED_TRACE(first);
    State expected{300};
    State actual{300};
    reference::adamw(expected.run(first, 270), AdamW{}, &scalars, Stream{});
    cpu_.adamw(actual.run(first, 270), AdamW{}, &scalars, stream());
    EXPECT_EQ(expected, actual);  // and nothing beside the run has changed
  }
}

// The property ZeRO stands on.
TEST_F(AdamWKernelTest, ShardsGiveTheSameBitsAsTheWhole) {
  const StepScalars scalars = at_update(3);
  State whole{5000};
  cpu_.adamw(whole.all(), AdamW{}, &scalars, stream());
  for (unsigned seed = 0; seed < 10; ++seed) {
    SCOPED_TRACE(seed);
    State sharded{5000};
    const auto cuts = random_cuts(5000, 7, seed);
    for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
      cpu_.adamw(sharded.run(cuts[i], cuts[i + 1] - cuts[i]), AdamW{}, &scalars, stream());
    }
    EXPECT_EQ(whole, sharded);
  }
}

TEST_F(AdamWKernelTest, SpecialValuesMatchReferenceToTheBit) {
  const Floats special{0.0F,   -0.0F,     1e-45F, -1e-40F, 1e-38F, 3e38F,
                       -3e38F, kInfinity, 1.0F,   1e-20F,  1e20F,  -kInfinity};
  const StepScalars scalars = at_update(5, 1.0F);
  State expected{static_cast<std::int64_t>(special.size() * special.size())};
  for (std::size_t i = 0; i < expected.gradient.size(); ++i) {
    expected.gradient[i] = special[i % special.size()];
    expected.v[i] = std::abs(special[i / special.size()]);
  }
  State actual = expected;
  reference::adamw(expected.all(), AdamW{}, &scalars, Stream{});
  cpu_.adamw(actual.all(), AdamW{}, &scalars, stream());
  for (std::size_t i = 0; i < expected.weight.size(); ++i) {
    if (std::isnan(expected.weight[i])) {
      EXPECT_TRUE(std::isnan(actual.weight[i])) << i;
    } else {
      EXPECT_EQ(expected.weight[i], actual.weight[i]) << i;
    }
  }
}

TEST_F(AdamWKernelTest, ARefusedStepLeavesEverythingUntouched) {
  StepScalars scalars = at_update(4);
  scalars.apply = 0;
  State before{1000};
  before.gradient[500] = kNan;
  State after = before;
  cpu_.adamw(after.all(), AdamW{}, &scalars, stream());
  EXPECT_EQ(before, after);
  reference::adamw(after.all(), AdamW{}, &scalars, Stream{});
  EXPECT_EQ(before, after);
}

// 100 steps against the textbook in fp64, written independently of the kernel: with m-hat and
// v-hat formed.
//
// Bound: u = 2^-24 is the unit roundoff. One step's update is lr q with |q| at most a few (here
// below 2); g, m, v, the root, the factors and the quotient carry relative errors of at most about
// (4 + 3 / (1 - b2)) u = 64 u each step, since rounding errors of v are carried on with weight b2
// and so sum to at most 3 u / (1 - b2); the last subtraction adds u |w|. 100 steps thus differ by
// at most 100 (2 * 64 lr + |w|) u; the steps' own feedback through decay only shrinks it. Where
// m cancels, its absolute error is that of the gradients' size, which the same bound covers.
TEST_F(AdamWKernelTest, FollowsFloat64OverAHundredSteps) {
  constexpr std::int64_t elems = 501;
  constexpr AdamW hyper{
      .lr = 1e-2F, .beta1 = 0.9F, .beta2 = 0.95F, .eps = 1e-8F, .weight_decay = 0.1F};
  State state{elems};
  std::fill(state.m.begin(), state.m.end(), 0.0F);
  std::fill(state.v.begin(), state.v.end(), 0.0F);
  std::vector<double> w(state.weight.begin(), state.weight.end()), m(elems, 0.0), v(elems, 0.0);
  const double lr = hyper.lr, b1 = hyper.beta1, b2 = hyper.beta2;
  for (int t = 1; t <= 100; ++t) {
    state.gradient = random_floats(elems, 100U + static_cast<unsigned>(t));
    const StepScalars scalars = at_update(t, 0.5F);
    cpu_.adamw(state.all(), hyper, &scalars, stream());
    for (std::size_t i = 0; i < w.size(); ++i) {
      const double g = 0.5 * static_cast<double>(state.gradient[i]);
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
    ASSERT_NEAR(static_cast<double>(state.weight[i]), w[i], bound) << "element " << i;
  }
}

TEST_F(AdamWKernelTest, RunsWhereItsStreamRuns) {
  const OwnedStream side = device_->make_side_stream("kernels");
  const StepScalars scalars = at_update(1);
  State expected{1000};
  State actual{1000};
  reference::adamw(expected.all(), AdamW{}, &scalars, Stream{});
  cpu_.adamw(actual.all(), AdamW{}, &scalars, side.get());
  side.get().wait();
  EXPECT_EQ(expected, actual);
}

}  // namespace
}  // namespace tessera::kernels
