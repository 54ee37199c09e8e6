#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <limits>
#include <utility>
#include <vector>

#include "support/groups.hpp"
#include "support/toy_model.hpp"
#include "tessera/world/run.hpp"

// A gradient that is not finite on one rank: every rank skips the step, under every strategy, and
// training continues with the same bits.
namespace tessera::test::skipped_steps_test {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr int kSteps = 5;
constexpr int kBadStep = 2;  // from 0

/// The master weights that this rank updates, piece by piece, in export order.
std::vector<float> masters_of(ShardedModel& model) {
  std::vector<float> all;
  model.export_masters([&](const ParameterInfo&, std::int64_t, std::span<const float> values) {
    all.insert(all.end(), values.begin(), values.end());
  });
  return all;
}

/// Trains the toy with `spoilt` gradients and checks every rank's reports, master weights and
/// parameters around the skipped step.
struct Watched {
  std::vector<std::vector<StepReport>> reports;    // by rank
  std::vector<std::vector<float>> masters_before;  // by rank
  std::vector<std::vector<float>> masters_after;
  std::map<std::string, std::vector<float>> before;
  std::map<std::string, std::vector<float>> after;

  explicit Watched(const ToyRun& run)
      : reports(static_cast<std::size_t>(run.ranks)),
        masters_before(reports.size()),
        masters_after(reports.size()) {
    run_ranks(run.ranks, [&](World& world) {
      const auto rank = static_cast<std::size_t>(world.rank());
      ToyModel toy{world, run.options, run.toy};
      toy.model().optimize_with(run.optimizer, {.clip_norm = run.clip_norm});
      for (int step = 0; step < run.steps; ++step) {
        const auto parameters = exported(toy.model(), StateTensor::parameters);
        auto masters = masters_of(toy.model());
        for (int micro = 0; micro < run.options.accumulate; ++micro) {
          const Spoilt& spoilt = run.spoilt.front();
          if (step == spoilt.step && micro == spoilt.micro_batch && world.rank() == spoilt.rank) {
            toy.spoil_next(1, spoilt.value);
          }
          (void)toy.forward_backward(step * 100 + micro * 10 + world.rank(), run.toy.batch);
        }
        toy.model().step();
        reports[rank].push_back(toy.model().report());
        if (step != run.spoilt.front().step) { continue; }
        masters_before[rank] = std::move(masters);
        masters_after[rank] = masters_of(toy.model());
        auto now = exported(toy.model(), StateTensor::parameters);
        if (world.rank() != 0) { continue; }
        before = parameters;
        after = std::move(now);
      }
    });
  }
};

bool same(const StepReport& a, const StepReport& b) {
  const bool same_norm = a.grad_norm == b.grad_norm || (a.skipped && b.skipped);
  return same_norm && a.step == b.step && a.skipped == b.skipped && a.loss_scale == b.loss_scale &&
         a.next_loss_scale == b.next_loss_scale && a.skipped_in_a_row == b.skipped_in_a_row;
}

class SkippedSteps : public ::testing::TestWithParam<int> {
 protected:
  static ToyRun run_with(float value, AccumulateMode mode) {
    ToyRun run;
    run.ranks = GetParam();
    run.steps = kSteps;
    run.options.accumulate = 2;
    run.options.accumulate_mode = mode;
    run.options.loss_scaling = {.mode = LossScaleMode::dynamic, .initial = 1024.0F};
    run.spoilt = {{.value = value, .rank = run.ranks - 1, .step = kBadStep, .micro_batch = 0}};
    return run;
  }
};
INSTANTIATE_TEST_SUITE_P(Ranks, SkippedSteps,
                         ::testing::ValuesIn(tried_ranks({1, 2, 3, 4}, {1, 3})),
                         ::testing::PrintToStringParamName());

/// A value that is not finite, in a model that computes in `compute`.
struct Case {
  float value = kInfinity;
  DType compute = DType::fp32;
};
constexpr std::array kCases{Case{kInfinity, DType::fp32}, Case{-kInfinity, DType::fp32},
                            Case{kNan, DType::fp32}, Case{kInfinity, DType::bf16},
                            Case{kInfinity, DType::fp16}};

TEST_P(SkippedSteps, AllRanksSkipAndTheScaleHalvesAndParametersStay) {
  for (const AccumulateMode mode : {AccumulateMode::every, AccumulateMode::deferred}) {
    for (const Strategy strategy : tried_strategies()) {
      for (const auto& [value, compute] : kCases) {
        SCOPED_TRACE(::testing::Message() << to_string(strategy) << " " << to_string(mode) << " "
                                          << to_string(compute) << " " << value);
        ToyRun run = run_with(value, mode);
        run.options.strategy = strategy;
        run.options.shard_group = groups_of_one(strategy);
        run.options.compute = compute;
        // fp16's loss scale is dynamic by default.
        if (compute == DType::fp16) { run.options.loss_scaling = {}; }
        const float scale = compute == DType::fp16 ? 65'536.0F : 1024.0F;
        const Watched watched{run};
        for (const auto& reports : watched.reports) {
          ASSERT_EQ(std::ssize(reports), kSteps);
          for (int step = 0; step < kSteps; ++step) {
            const StepReport& report = reports[static_cast<std::size_t>(step)];
            EXPECT_TRUE(same(report, watched.reports[0][static_cast<std::size_t>(step)]));
            EXPECT_EQ(report.step, step + 1);
            EXPECT_EQ(report.skipped, step == kBadStep);
            EXPECT_EQ(report.skipped_in_a_row, step == kBadStep ? 1 : 0);
            EXPECT_EQ(report.loss_scale, step <= kBadStep ? scale : scale / 2);
            EXPECT_EQ(report.next_loss_scale, step < kBadStep ? scale : scale / 2);
          }
        }
        EXPECT_FALSE(watched.before.empty());
        EXPECT_EQ(watched.before, watched.after);
        EXPECT_FALSE(watched.masters_before[0].empty());
        EXPECT_EQ(watched.masters_before, watched.masters_after);
      }
    }
  }
}

TEST_P(SkippedSteps, TrainingGoesOnWithTheSameBitsUnderEveryStrategy) {
  for (const AccumulateMode mode : {AccumulateMode::every, AccumulateMode::deferred}) {
    for (const float value : {kInfinity, kNan}) {
      ToyRun run = run_with(value, mode);
      run.steps = 12;
      run.spoilt.push_back({.value = value, .rank = 0, .step = 6, .micro_batch = 1});
      const ToyOutcome expected = run_toy(run);
      ASSERT_EQ(std::ssize(expected.losses), run.steps);
      EXPECT_EQ(std::count(expected.skipped.begin(), expected.skipped.end(), true), 2);
      EXPECT_EQ(expected.loss_scales.back(), 256.0F);
      EXPECT_TRUE(expected.clipped);
      for (const Strategy strategy : tried_strategies()) {
        run.options.strategy = strategy;
        run.options.shard_group = groups_of_one(strategy);
        EXPECT_EQ(difference(expected, run_toy(run)), "")
            << to_string(strategy) << " " << to_string(mode) << " " << value;
      }
    }
  }
}

// A scale of 65536 overflows some of these gradients: the scale adapts.
TEST_P(SkippedSteps, SixteenBitModelsSkipTheSameStepsUnderEveryStrategy) {
  for (const DType dtype : {DType::bf16, DType::fp16}) {
    ToyRun run;
    run.ranks = GetParam();
    run.options.compute = run.options.gradient = dtype;
    run.spoilt = {{.value = kInfinity, .rank = run.ranks - 1, .step = 9, .micro_batch = 0}};
    const ToyOutcome expected = run_toy(run);
    EXPECT_EQ(expected.loss_scales.front(), dtype == DType::fp16 ? 65'536.0F : 1.0F);
    EXPECT_EQ(expected.skipped[9], true);
    EXPECT_EQ(expected.skipped.back(), false);
    EXPECT_EQ(expected.loss_scales[10], dtype == DType::fp16 ? expected.loss_scales[9] / 2 : 1.0F);
    EXPECT_LT(expected.losses.back(), expected.losses.front());
    for (const Strategy strategy : tried_strategies()) {
      run.options.strategy = strategy;
      run.options.shard_group = groups_of_one(strategy);
      EXPECT_EQ(difference(expected, run_toy(run)), "") << to_string(strategy);
    }
  }
}

// The scale varies over 2^3 ... 2^12 and changes no bit of anything else.
TEST_P(SkippedSteps, AScaleThatIsAPowerOfTwoChangesNoBit) {
  for (const float clip_norm : {0.0F, 0.5F}) {
    ToyRun run;
    run.ranks = GetParam();
    run.steps = 30;
    run.clip_norm = clip_norm;
    run.options.accumulate = 2;
    run.options.accumulate_mode = AccumulateMode::every;
    run.options.loss_scaling.mode = LossScaleMode::off;
    ToyOutcome off = run_toy(run);
    run.options.loss_scaling = {
        .mode = LossScaleMode::dynamic, .initial = 8.0F, .growth_interval = 3};
    for (const Strategy strategy : tried_strategies()) {
      run.options.strategy = strategy;
      run.options.shard_group = groups_of_one(strategy);
      const ToyOutcome dynamic = run_toy(run);
      EXPECT_EQ(dynamic.loss_scales.front(), 8.0F);
      EXPECT_EQ(dynamic.loss_scales.back(), 4096.0F);
      off.loss_scales = dynamic.loss_scales;
      EXPECT_EQ(difference(off, dynamic), "") << to_string(strategy);
    }
  }
}

}  // namespace
}  // namespace tessera::test::skipped_steps_test
