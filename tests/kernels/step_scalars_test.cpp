#include "kernels/step_scalars/step_scalars.hpp"

#include <string>
#include <tuple>

#include "kernels/values.hpp"

namespace tessera::kernels::step_scalars_test {
namespace {

void expect_same(const StepScalars& a, const StepScalars& b) {
  EXPECT_EQ(std::bit_cast<std::uint64_t>(a.grad_norm), std::bit_cast<std::uint64_t>(b.grad_norm));
  EXPECT_EQ(std::bit_cast<std::uint64_t>(a.loss), std::bit_cast<std::uint64_t>(b.loss));
  EXPECT_EQ(std::tie(a.clip, a.gradient_factor, a.apply, a.updates),
            std::tie(b.clip, b.gradient_factor, b.apply, b.updates));
  EXPECT_EQ(std::tie(a.loss_scale, a.used_loss_scale, a.good_steps, a.skipped_in_a_row, a.skipped),
            std::tie(b.loss_scale, b.used_loss_scale, b.good_steps, b.skipped_in_a_row, b.skipped));
}

class FinishStepKernels : public BackendTest {
 protected:
  void finish(StepScalars& scalars, const std::vector<double>& sums, const FinishStep& options) {
    DeviceArray<StepScalars> on_device{bench(), std::vector<StepScalars>{scalars}};
    DeviceArray<double> device_sums{bench(), sums};
    table().finish_step(on_device.data(), device_sums.data(), options, stream());
    scalars = on_device.read().front();
  }
};
INSTANTIATE_TEST_SUITE_P(Backends, FinishStepKernels, backends(), backend_name);

TEST_P(FinishStepKernels, AddsTheShardsAveragesAndClips) {
  const std::vector<double> sums{20.0, 40.0, 4.0, 12.0};
  StepScalars scalars{.updates = 4};
  finish(scalars, sums, {.average = 0.25F, .clip_norm = 1.0F, .ranks = 3, .norms = 3});
  EXPECT_EQ(scalars.grad_norm, 2.0);
  EXPECT_EQ(scalars.loss, 4.0);
  const double clip = 1.0 / (2.0 + 1e-6);
  EXPECT_EQ(scalars.clip, static_cast<float>(clip));
  EXPECT_EQ(scalars.gradient_factor, static_cast<float>(0.25 * clip));
  EXPECT_EQ(scalars.apply, 1);
  EXPECT_EQ(scalars.updates, 5);
}

// 3 ranks counted 6 of 24 tokens: means over all tokens become four times as large.
TEST_P(FinishStepKernels, MeansAreOverWhatCounted) {
  const FinishStep options{
      .average = 0.25F, .clip_norm = 0.0F, .ranks = 3, .norms = 2, .most_counted = 24.0};
  const std::vector<double> sums{60.0, 4.0, 12.0, 6.0};
  StepScalars scalars, expected;
  reference::finish_step(&expected, sums.data(), options, Stream{});
  finish(scalars, sums, options);
  expect_same(scalars, expected);
  EXPECT_EQ(scalars.grad_norm, 8.0);
  EXPECT_EQ(scalars.loss, 16.0);
  EXPECT_EQ(scalars.gradient_factor, 1.0F);
}

TEST_P(FinishStepKernels, AStepThatCountsNothingHasNoGradient) {
  const FinishStep options{
      .average = 0.25F, .clip_norm = 1.0F, .ranks = 3, .norms = 1, .most_counted = 24.0};
  const std::vector<double> sums{0.0, 0.0, 0.0};
  StepScalars scalars, expected;
  reference::finish_step(&expected, sums.data(), options, Stream{});
  finish(scalars, sums, options);
  expect_same(scalars, expected);
  EXPECT_EQ(scalars.loss, 0.0);
  EXPECT_EQ(scalars.gradient_factor, 0.0F);
  EXPECT_EQ(scalars.apply, 1);
}

// 1 + 2^53 loses one 1, 2^53 + 1 + 1 would lose both, 1 + 1 + 2^53 neither.
TEST_P(FinishStepKernels, AddsInRankOrder) {
  const double big = std::ldexp(1.0, 53);
  const std::vector<double> sums{1.0, 1.0, big, 0.0};
  StepScalars scalars;
  finish(scalars, sums, {.average = 1.0F, .clip_norm = 0.0F, .ranks = 3, .norms = 3});
  EXPECT_EQ(scalars.grad_norm, std::sqrt(big + 2.0));
}

TEST_P(FinishStepKernels, ASmallNormIsNotClipped) {
  const std::vector<double> sums{0.25, 1.0};
  StepScalars scalars;
  finish(scalars, sums, {.average = 0.5F, .clip_norm = 1.0F, .ranks = 1, .norms = 1});
  EXPECT_EQ(scalars.clip, 1.0F);
  EXPECT_EQ(scalars.gradient_factor, 0.5F);
}

TEST_P(FinishStepKernels, ZeroClipNormMeansNoClipping) {
  const std::vector<double> sums{1e12, 1.0};
  StepScalars scalars;
  finish(scalars, sums, {.average = 1.0F, .clip_norm = 0.0F, .ranks = 1, .norms = 1});
  EXPECT_EQ(scalars.clip, 1.0F);
  EXPECT_EQ(scalars.gradient_factor, 1.0F);
  EXPECT_EQ(scalars.grad_norm, 1e6);
}

TEST_P(FinishStepKernels, AZeroGradientIsApplied) {
  const std::vector<double> sums{0.0, 3.0};
  StepScalars scalars;
  finish(scalars, sums, {.average = 1.0F, .clip_norm = 1.0F, .ranks = 1, .norms = 1});
  EXPECT_EQ(scalars.clip, 1.0F);
  EXPECT_EQ(scalars.updates, 1);
}

TEST_P(FinishStepKernels, ANonFiniteNormOfAnyShardRefusesTheStep) {
  for (const double bad : {HUGE_VAL, std::nan("")}) {
    for (const std::size_t at : {0U, 1U}) {
      std::vector<double> sums{1.0, 1.0, 2.0};
      sums[at] = bad;
      StepScalars scalars{.updates = 9};
      finish(scalars, sums, {.average = 0.5F, .clip_norm = 1.0F, .ranks = 2, .norms = 2});
      EXPECT_EQ(scalars.apply, 0);
      EXPECT_EQ(scalars.updates, 9);
      EXPECT_EQ(scalars.loss, 1.0);
      EXPECT_FALSE(std::isfinite(scalars.grad_norm));
      EXPECT_EQ(scalars.clip, 1.0F);
      EXPECT_EQ(scalars.gradient_factor, 0.5F);
    }
  }
}

TEST_P(FinishStepKernels, UnscalesTheNormAndTheGradients) {
  const std::vector<double> sums{4.0 * 1024 * 1024, 3.0};
  StepScalars scalars{.loss_scale = 1024.0F};
  finish(scalars, sums, {.average = 0.5F, .clip_norm = 0.25F, .ranks = 1, .norms = 1});
  EXPECT_EQ(scalars.grad_norm, 1.0);
  EXPECT_EQ(scalars.loss, 3.0);
  const double clip = 0.25 / (1.0 + 1e-6);
  EXPECT_EQ(scalars.clip, static_cast<float>(clip));
  EXPECT_EQ(scalars.gradient_factor, static_cast<float>(0.5 * clip / 1024));
  EXPECT_EQ(scalars.used_loss_scale, 1024.0F);
  EXPECT_EQ(scalars.loss_scale, 1024.0F);
}

TEST_P(FinishStepKernels, TheScaleBacksOffAndGrowsBetweenItsLimits) {
  const FinishStep options{.scale_growth = 2.0F,
                           .scale_backoff = 0.5F,
                           .growth_interval = 2,
                           .least_scale = 1.0F,
                           .most_scale = 8.0F};
  StepScalars scalars{.loss_scale = 4.0F};
  std::vector<float> scales;
  for (const char step : std::string{"bbbgbgggggggg"}) {
    const std::vector<double> sums{step == 'b' ? HUGE_VAL : 1.0, 0.0};
    finish(scalars, sums, options);
    scales.push_back(scalars.loss_scale);
  }
  EXPECT_EQ(scales, (std::vector<float>{2, 1, 1, 1, 1, 1, 2, 2, 4, 4, 8, 8, 8}));
  EXPECT_EQ(scalars.skipped, 4);
  EXPECT_EQ(scalars.skipped_in_a_row, 0);
}

TEST_P(FinishStepKernels, SkippedStepsAreCountedInARow) {
  StepScalars scalars;
  std::vector<std::int64_t> in_a_row;
  for (const double norm : {HUGE_VAL, 1.0, std::nan(""), HUGE_VAL, 2.0}) {
    const std::vector<double> sums{norm, 0.0};
    finish(scalars, sums, {});
    in_a_row.push_back(scalars.skipped_in_a_row);
    EXPECT_EQ(scalars.loss_scale, 1.0F) << "nothing scales";
  }
  EXPECT_EQ(in_a_row, (std::vector<std::int64_t>{1, 0, 1, 2, 0}));
  EXPECT_EQ(scalars.skipped, 3);
}

TEST_P(FinishStepKernels, MatchesReferenceOverManySteps) {
  std::mt19937 generator{3};
  std::uniform_real_distribution<double> square{0.0, 100.0};
  for (const float clip_norm : {0.0F, 0.7F}) {
    for (const std::int64_t interval : {0, 1, 3}) {
      const FinishStep options{.average = 1.0F / 6,
                               .clip_norm = clip_norm,
                               .ranks = 3,
                               .norms = 3,
                               .scale_growth = 3.0F,
                               .scale_backoff = 0.3F,
                               .growth_interval = interval,
                               .least_scale = 0.7F,
                               .most_scale = 1000.0F};
      StepScalars actual{.loss_scale = 11.0F}, expected = actual;
      for (int step = 0; step < 200; ++step) {
        std::vector<double> sums{square(generator), square(generator), square(generator),
                                 square(generator)};
        if (generator() % 4 == 0) { sums[generator() % 3] = generator() % 2 ? HUGE_VAL : NAN; }
        reference::finish_step(&expected, sums.data(), options, Stream{});
        finish(actual, sums, options);
        if (std::isfinite(expected.grad_norm)) { expect_same(actual, expected); }
        EXPECT_EQ(actual.loss_scale, expected.loss_scale);
        EXPECT_EQ(actual.skipped, expected.skipped);
      }
      EXPECT_GT(actual.skipped, 0);
    }
  }
}

TEST_P(FinishStepKernels, AStepAfterARefusedOneIsAppliedAgain) {
  std::vector<double> sums{std::nan(""), 2.0};
  StepScalars scalars{.updates = 9};
  finish(scalars, sums, {});
  sums[0] = 1.0;
  finish(scalars, sums, {});
  EXPECT_EQ(scalars.apply, 1);
  EXPECT_EQ(scalars.updates, 10);
}

FinishStep scaled(int ranks) {
  FinishStep options;
  options.average = 1.0F / 3.0F;
  options.clip_norm = 1.0F;
  options.ranks = ranks;
  options.norms = ranks;
  options.scale_growth = 2.0F;
  options.scale_backoff = 0.5F;
  options.growth_interval = 2;
  options.least_scale = 1.0F;
  options.most_scale = 65536.0F;
  return options;
}

TEST_P(FinishStepKernels, HaveTheReferencesBitsOfHandMadeSteps) {
  const auto expect_reference = [&](StepScalars scalars, const std::vector<double>& sums,
                                    const FinishStep& options) {
    StepScalars expected = scalars;
    reference::finish_step(&expected, sums.data(), options, Stream{});
    finish(scalars, sums, options);
    expect_same(scalars, expected);
  };
  StepScalars scalars;
  expect_reference(scalars, {2.0, 3.5}, FinishStep{});
  scalars.loss_scale = 1024.0F;
  scalars.updates = 41;
  for (std::int64_t good = 0; good < 2; ++good) {
    scalars.good_steps = good;
    expect_reference(scalars, {2.0, 0.1, 1e-3, 7.25}, scaled(3));
    expect_reference(scalars, {1e9, 1e12, 1e-3, 7.25}, scaled(3));
  }
  scalars.loss_scale = 1.5F;
  scalars.skipped_in_a_row = 2;
  expect_reference(scalars, {2.0, HUGE_VAL, 1.0}, scaled(2));
}

}  // namespace
}  // namespace tessera::kernels::step_scalars_test
