// Effect of rounding moments to 8 bits on AdamW over many updates, on a CPU. Other kernels have the
// reference's bits (quantised_update_test.cpp).
//
// bounds: statistics of stochastic rounding in 8 bits; none compares orders of sums
#include "kernels/update/quantised_moments_reference.hpp"
#include "kernels/values.hpp"
#include "tessera/base/math.hpp"

namespace tessera::kernels::quantised_moments_test {
namespace {

using QuantisedMoments = CpuTest;

/// A parameter with id 5, from its element 512 on.
struct State {
  explicit State(std::int64_t elems)
      : master{random_floats(elems, 1)},
        gradient{random_floats(elems, 2)},
        first(master.size()),
        second(master.size()),
        first_scales(static_cast<std::size_t>(ceil_div(elems, kMomentBlock))),
        second_scales{first_scales} {}

  UpdateRun run() {
    return {.master = master.data(),
            .gradient = gradient.data(),
            .first_quantised = {first.data(), first_scales.data()},
            .second_quantised = {second.data(), second_scales.data()},
            .elems = std::ssize(master),
            .seed = 42,
            .parameter_id = 5,
            .first_in_parameter = 512};
  }

  Floats master, gradient;
  std::vector<std::uint8_t> first, second;
  Floats first_scales, second_scales;
};

/// AdamW with 8-bit moments next to AdamW with fp32 moments, with the same gradients.
struct Pair {
  explicit Pair(std::int64_t elems)
      : quantised{elems}, master{quantised.master}, first(master.size()), second(first) {}

  void update(std::int64_t t, const AdamW& hyper, Stream stream) {
    StepScalars scalars;
    scalars.updates = t;
    cpu::adamw(alone(quantised.run(), hyper), &scalars, stream);
    UpdateRun run = quantised.run();
    run.first_quantised = {};
    run.second_quantised = {};
    run.master = master.data();
    run.first = first.data();
    run.second = second.data();
    cpu::adamw(alone(run, hyper), &scalars, stream);
  }

  State quantised;
  Floats master, first, second;
};

double mean_of(const Floats& values, float (*of)(float)) {
  double sum = 0.0;
  for (const float value : values) { sum += of(value); }
  return sum / static_cast<double>(values.size());
}
float magnitude(float x) {
  return std::abs(x);
}
float root(float x) {
  return std::sqrt(x);
}

// Stochastic rounding is unbiased: the means follow fp32's. A single element strays by about a
// tenth within 1 / (1 - beta2) updates.
TEST_F(QuantisedMoments, WithoutAGradientMomentsDecayAsThoseOfFp32) {
  for (const float beta2 : {0.95F, 0.999F}) {
    Pair pair{100 * kMomentBlock};
    const AdamW hyper{.lr = 0.0F, .beta2 = beta2};
    pair.update(1, hyper, stream());
    std::fill(pair.quantised.gradient.begin(), pair.quantised.gradient.end(), 0.0F);
    for (std::int64_t t = 2; t <= 1001; ++t) {
      pair.update(t, hyper, stream());
      if (t != 101 && t != 401 && t != 1001) { continue; }
      const reference::WideMoments kept = reference::dequantise(pair.quantised.run());
      EXPECT_NEAR(mean_of(kept.second, root) / mean_of(pair.second, root), 1.0, 0.01) << t;
      if (t > 401) { continue; }  // the first moment is below the range by then
      EXPECT_NEAR(mean_of(kept.first, magnitude) / mean_of(pair.first, magnitude), 1.0, 0.02) << t;
    }
  }
}

TEST_F(QuantisedMoments, WithAConstantGradientMomentsConvergeToIt) {
  for (const float beta2 : {0.95F, 0.999F}) {
    Pair pair{4 * kMomentBlock};
    const AdamW hyper{.lr = 0.0F, .beta2 = beta2};
    for (std::int64_t t = 1; t <= 3000; ++t) { pair.update(t, hyper, stream()); }
    const reference::WideMoments kept = reference::dequantise(pair.quantised.run());
    EXPECT_NEAR(mean_of(kept.first, magnitude) / mean_of(pair.first, magnitude), 1.0, 0.01);
    EXPECT_NEAR(mean_of(kept.second, root) / mean_of(pair.second, root), 1.0, 0.01) << beta2;
    for (std::size_t i = 0; i < kept.second.size(); ++i) {
      ASSERT_NEAR(std::sqrt(kept.second[i] / pair.second[i]), 1.0F, 0.6F);
    }
  }
}

// As docs/moments.md states: gradients of mean 0.1 and deviation 1, whose scale varies over four
// decades in a block. Steps are in units of the learning rate; their root mean square is 0.25.
TEST_F(QuantisedMoments, UnderNoiseTheStepIsWithinATenthOfFp32s) {
  for (const auto& [beta2, bound] : {std::pair{0.95F, 0.03}, {0.999F, 0.045}}) {
    Pair pair{4 * kMomentBlock};
    std::mt19937 generator{5};
    std::normal_distribution<float> normal{0.1F, 1.0F};
    const AdamW hyper{.lr = 1.0F, .beta2 = beta2, .weight_decay = 0.0F};
    double stray = 0.0;
    double moved = 0.0;
    for (std::int64_t t = 1; t <= 1500; ++t) {
      for (std::size_t i = 0; i < pair.master.size(); ++i) {
        const float scale = std::pow(10.0F, -static_cast<float>(i % 97) / 24.0F);
        pair.quantised.gradient[i] = scale * normal(generator);
        pair.quantised.master[i] = pair.master[i] = 0.0F;
      }
      pair.update(t, hyper, stream());
      for (std::size_t i = 0; t > 750 && i < pair.master.size(); ++i) {
        const double difference = pair.quantised.master[i] - pair.master[i];
        stray += difference * difference;
        moved += static_cast<double>(pair.master[i]) * pair.master[i];
      }
    }
    const auto count = static_cast<double>(750 * pair.master.size());
    EXPECT_NEAR(std::sqrt(moved / count), 0.25, 0.03);
    EXPECT_LT(std::sqrt(stray / count), bound) << beta2;
  }
}

// The danger of few bits: v becomes 0 while m does not, and m / (0 + eps) is huge. The smallest
// gradients here are 1e-12 of their block's largest.
TEST_F(QuantisedMoments, TheStepStaysBoundedNextToAHugeNeighbour) {
  Pair pair{2 * kMomentBlock};
  const Floats noise = random_floats(2 * kMomentBlock, 9);
  std::mt19937 generator{3};
  std::normal_distribution<float> normal;
  const AdamW hyper{.lr = 1.0F, .weight_decay = 0.0F};
  float furthest = 0.0F;
  for (std::int64_t t = 1; t <= 300; ++t) {
    for (std::size_t i = 0; i < noise.size(); ++i) {
      const float scale = std::pow(10.0F, -static_cast<float>(i % 128) / 10.0F);
      pair.quantised.gradient[i] = (i < kMomentBlock ? scale : 0.0F) * normal(generator);
    }
    const Floats before = pair.quantised.master;
    StepScalars scalars;
    scalars.updates = t;
    cpu::adamw(alone(pair.quantised.run(), hyper), &scalars, stream());
    for (std::size_t i = 0; i < before.size(); ++i) {
      const float moved = std::abs(pair.quantised.master[i] - before[i]);
      ASSERT_TRUE(std::isfinite(moved));
      furthest = std::max(furthest, moved);
    }
  }
  EXPECT_LT(furthest, 8.0F) << "in rates; 1 is usual";
  for (std::size_t i = kMomentBlock; i < noise.size(); ++i) {  // a block of zeros
    EXPECT_EQ(pair.quantised.first[i] & 0x7F, 0);
    EXPECT_EQ(pair.quantised.second[i], 0);
  }
}

}  // namespace
}  // namespace tessera::kernels::quantised_moments_test
