#include "kernels/step_scalars/step_scalars.hpp"

#include <string>
#include <tuple>

#include "kernels/support.hpp"

namespace tessera::kernels {
namespace {

using FinishStepTest = KernelTest;

TEST_F(FinishStepTest, AddsTheShardsAveragesAndClips) {
  const double sums[] = {20.0, 40.0, 4.0, 12.0};
  StepScalars scalars{.updates = 4};
  cpu_.finish_step(&scalars, sums, {.average = 0.25F, .clip_norm = 1.0F, .ranks = 3}, stream());
  EXPECT_EQ(scalars.grad_norm, 2.0);
  EXPECT_EQ(scalars.loss, 4.0);
  const double clip = 1.0 / (2.0 + 1e-6);
  EXPECT_EQ(scalars.clip, static_cast<float>(clip));
  EXPECT_EQ(scalars.gradient_factor, static_cast<float>(0.25 * clip));
  EXPECT_EQ(scalars.apply, 1);
  EXPECT_EQ(scalars.updates, 5);
}

// 1 + 2^53 loses the one, 2^53 + 1 + 1 would lose both, 1 + 1 + 2^53 neither.
TEST_F(FinishStepTest, AddsInRankOrder) {
  const double big = std::ldexp(1.0, 53);
  const double sums[] = {1.0, 1.0, big, 0.0};
  StepScalars scalars;
  cpu_.finish_step(&scalars, sums, {.average = 1.0F, .clip_norm = 0.0F, .ranks = 3}, stream());
  EXPECT_EQ(scalars.grad_norm, std::sqrt(big + 2.0));
}

TEST_F(FinishStepTest, ASmallNormIsNotClipped) {
  const double sums[] = {0.25, 1.0};
  StepScalars scalars;
  cpu_.finish_step(&scalars, sums, {.average = 0.5F, .clip_norm = 1.0F, .ranks = 1}, stream());
  EXPECT_EQ(scalars.clip, 1.0F);
  EXPECT_EQ(scalars.gradient_factor, 0.5F);
}

TEST_F(FinishStepTest, ZeroClipNormMeansNoClipping) {
  const double sums[] = {1e12, 1.0};
  StepScalars scalars;
  cpu_.finish_step(&scalars, sums, {.average = 1.0F, .clip_norm = 0.0F, .ranks = 1}, stream());
  EXPECT_EQ(scalars.clip, 1.0F);
  EXPECT_EQ(scalars.gradient_factor, 1.0F);
  EXPECT_EQ(scalars.grad_norm, 1e6);
}

TEST_F(FinishStepTest, AZeroGradientIsApplied) {
  const double sums[] = {0.0, 3.0};
  StepScalars scalars;
  cpu_.finish_step(&scalars, sums, {.average = 1.0F, .clip_norm = 1.0F, .ranks = 1}, stream());
  EXPECT_EQ(scalars.clip, 1.0F);
  EXPECT_EQ(scalars.updates, 1);
}

TEST_F(FinishStepTest, ANonFiniteNormOfAnyShardRefusesTheStep) {
  for (const double bad : {HUGE_VAL, std::nan("")}) {
    for (const std::size_t at : {0U, 1U}) {
      double sums[] = {1.0, 1.0, 2.0};
      sums[at] = bad;
      StepScalars scalars{.updates = 9};
      cpu_.finish_step(&scalars, sums, {.average = 0.5F, .clip_norm = 1.0F, .ranks = 2}, stream());
      EXPECT_EQ(scalars.apply, 0);
      EXPECT_EQ(scalars.updates, 9);
      EXPECT_EQ(scalars.loss, 1.0);
      EXPECT_FALSE(std::isfinite(scalars.grad_norm));
      EXPECT_EQ(scalars.clip, 1.0F);
      EXPECT_EQ(scalars.gradient_factor, 0.5F);
    }
  }
}

TEST_F(FinishStepTest, UnscalesTheNormAndTheGradients) {
  const double sums[] = {4.0 * 1024 * 1024, 3.0};
  StepScalars scalars{.loss_scale = 1024.0F};
  cpu_.finish_step(&scalars, sums, {.average = 0.5F, .clip_norm = 0.25F, .ranks = 1}, stream());
  EXPECT_EQ(scalars.grad_norm, 1.0);
  EXPECT_EQ(scalars.loss, 3.0);
  const double clip = 0.25 / (1.0 + 1e-6);
  EXPECT_EQ(scalars.clip, static_cast<float>(clip));
  EXPECT_EQ(scalars.gradient_factor, static_cast<float>(0.5 * clip / 1024));
  EXPECT_EQ(scalars.used_loss_scale, 1024.0F);
  EXPECT_EQ(scalars.loss_scale, 1024.0F);
}

TEST_F(FinishStepTest, TheScaleBacksOffAndGrowsBetweenItsLimits) {
  const FinishStep options{.scale_growth = 2.0F,
                           .scale_backoff = 0.5F,
                           .growth_interval = 2,
                           .least_scale = 1.0F,
                           .most_scale = 8.0F};
  StepScalars scalars{.loss_scale = 4.0F};
  std::vector<float> scales;
  for (const char step : std::string{"bbbgbgggggggg"}) {
    const double sums[] = {step == 'b' ? HUGE_VAL : 1.0, 0.0};
    cpu_.finish_step(&scalars, sums, options, stream());
    scales.push_back(scalars.loss_scale);
  }
  EXPECT_EQ(scales, (std::vector<float>{2, 1, 1, 1, 1, 1, 2, 2, 4, 4, 8, 8, 8}));
  EXPECT_EQ(scalars.skipped, 4);
  EXPECT_EQ(scalars.skipped_in_a_row, 0);
}

TEST_F(FinishStepTest, SkippedStepsAreCountedInARow) {
  StepScalars scalars;
  std::vector<std::int64_t> in_a_row;
  for (const double norm : {HUGE_VAL, 1.0, std::nan(""), HUGE_VAL, 2.0}) {
    const double sums[] = {norm, 0.0};
    cpu_.finish_step(&scalars, sums, {}, stream());
    in_a_row.push_back(scalars.skipped_in_a_row);
    EXPECT_EQ(scalars.loss_scale, 1.0F) << "nothing scales";
  }
  EXPECT_EQ(in_a_row, (std::vector<std::int64_t>{1, 0, 1, 2, 0}));
  EXPECT_EQ(scalars.skipped, 3);
}

void expect_same(const StepScalars& a, const StepScalars& b) {
  EXPECT_EQ(std::bit_cast<std::uint64_t>(a.grad_norm), std::bit_cast<std::uint64_t>(b.grad_norm));
  EXPECT_EQ(std::bit_cast<std::uint64_t>(a.loss), std::bit_cast<std::uint64_t>(b.loss));
  EXPECT_EQ(std::tie(a.clip, a.gradient_factor, a.apply, a.updates),
            std::tie(b.clip, b.gradient_factor, b.apply, b.updates));
  EXPECT_EQ(std::tie(a.loss_scale, a.used_loss_scale, a.good_steps, a.skipped_in_a_row, a.skipped),
            std::tie(b.loss_scale, b.used_loss_scale, b.good_steps, b.skipped_in_a_row, b.skipped));
}

TEST_F(FinishStepTest, MatchesReferenceOverManySteps) {
  std::mt19937 generator{3};
  std::uniform_real_distribution<double> square{0.0, 100.0};
  for (const float clip_norm : {0.0F, 0.7F}) {
    for (const std::int64_t interval : {0, 1, 3}) {
      const FinishStep options{.average = 1.0F / 6,
                               .clip_norm = clip_norm,
                               .ranks = 3,
                               .scale_growth = 3.0F,
                               .scale_backoff = 0.3F,
                               .growth_interval = interval,
                               .least_scale = 0.7F,
                               .most_scale = 1000.0F};
      StepScalars actual{.loss_scale = 11.0F}, expected = actual;
      for (int step = 0; step < 200; ++step) {
        double sums[] = {square(generator), square(generator), square(generator),
                         square(generator)};
        if (generator() % 4 == 0) { sums[generator() % 3] = generator() % 2 ? HUGE_VAL : NAN; }
        reference::finish_step(&expected, sums, options, stream());
        cpu_.finish_step(&actual, sums, options, stream());
        if (std::isfinite(expected.grad_norm)) { expect_same(actual, expected); }
        EXPECT_EQ(actual.loss_scale, expected.loss_scale);
        EXPECT_EQ(actual.skipped, expected.skipped);
      }
      EXPECT_GT(actual.skipped, 0);
    }
  }
}

TEST_F(FinishStepTest, AStepAfterARefusedOneIsAppliedAgain) {
  double sums[] = {std::nan(""), 2.0};
  StepScalars scalars{.updates = 9};
  cpu_.finish_step(&scalars, sums, {}, stream());
  sums[0] = 1.0;
  cpu_.finish_step(&scalars, sums, {}, stream());
  EXPECT_EQ(scalars.apply, 1);
  EXPECT_EQ(scalars.updates, 10);
}

}  // namespace
}  // namespace tessera::kernels
