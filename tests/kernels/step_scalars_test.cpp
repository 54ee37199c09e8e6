#include "kernels/step_scalars/step_scalars.hpp"

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
