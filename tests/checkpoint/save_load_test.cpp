// A checkpoint does not depend on the job that wrote it, and any job continues from it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "checkpoint/toy_job.hpp"
#include "support/temporary_folder.hpp"
#include "tessera/checkpoint/checkpointer.hpp"
#include "tessera/checkpoint/safetensors.hpp"

namespace tessera::test::save_load_test {
namespace {

class StateFormats : public testing::TestWithParam<std::pair<std::string, ToyJob>> {};
INSTANTIATE_TEST_SUITE_P(All, StateFormats, testing::ValuesIn(state_formats()),
                         [](const auto& tested) { return tested.param.first; });

TEST_P(StateFormats, OneStateHasTheSameBytesUnderEveryStrategy) {
  const TemporaryFolder folder;
  const ToyJob job = GetParam().second;
  const auto first = train_and_save(job.under(Strategy::zero3), 3, folder / "first");
  for (const Strategy strategy : all_strategies()) {
    const std::string name{to_string(strategy)};
    EXPECT_EQ(difference(first, load_and_save(job.under(strategy), first, folder / name)), "")
        << name;
  }
}

TEST_P(StateFormats, AJobOfTheSameRanksResumesBitIdentically) {
  const TemporaryFolder folder;
  const ToyJob job = GetParam().second.under(Strategy::zero2);
  const auto whole = train_and_save(job, 8, folder / "whole");
  const auto saved = train_and_save(job, 3, folder / "saved");
  run_job(job, [&](World& world, ToyTrainer& trainer) {
    EXPECT_EQ(load(trainer.model(), saved).step, 3);
    trainer.steps(5);
    const auto resumed = save(trainer.model(), folder / "resumed");
    if (world.rank() == 0) { EXPECT_EQ(difference(whole, resumed), ""); }
  });
}

/// Between runs on different numbers of ranks.
const ToyBounds kWithin = between_orders(ToyJob{}.toy, ToyJob::kGlobalBatch);

TEST(Resume, OnAnyNumberOfRanksUnderEveryStrategyLossesAreThoseOfTheUninterruptedRun) {
  const TemporaryFolder folder;
  const ToyJob job = ToyJob{}.under(Strategy::zero3);
  const auto saved = train_and_save(job, 5, folder / "saved");
  std::vector<double> expected;
  run_job(job, [&](World& world, ToyTrainer& trainer) {
    trainer.steps(5);
    const std::vector<double> losses = trainer.steps(15);
    if (world.rank() == 0) { expected = losses; }
  });
  for (const int ranks : {1, 2, 3, 8}) {
    for (const Strategy strategy : all_strategies()) {
      const std::string name = std::to_string(ranks) + std::string{to_string(strategy)};
      run_job(job.on(ranks).under(strategy), [&](World& world, ToyTrainer& trainer) {
        (void)load(trainer.model(), saved);
        const auto again = save(trainer.model(), folder / name);
        const std::vector<double> losses = trainer.steps(15);
        if (world.rank() != 0) { return; }
        EXPECT_EQ(difference(saved, again), "") << name;
        for (std::size_t i = 0; i < losses.size(); ++i) {
          EXPECT_NEAR(losses[i], expected[i], kWithin.loss * expected[0]) << name << ", step " << i;
        }
      });
    }
  }
}

using Values = std::map<std::string, std::vector<float>>;

/// Losses after a resume, and the weights and gradients before each update.
struct Trajectory {
  std::vector<double> losses;
  std::vector<Values> weights;
  std::vector<Values> gradients;
};

Trajectory resumed(const ToyJob& job, const std::filesystem::path& saved, int steps) {
  Trajectory all;
  run_job(job, [&](World& world, ToyTrainer& trainer) {
    (void)load(trainer.model(), saved);
    for (int i = 0; i < steps; ++i) {
      Values weights = exported(trainer.model(), tessera::StateTensor::parameters);
      Values gradients;
      const double loss = trainer.step(
          [&] { gradients = exported(trainer.model(), tessera::StateTensor::gradients); });
      if (world.rank() != 0) { continue; }
      all.losses.push_back(loss);
      all.weights.push_back(std::move(weights));
      all.gradients.push_back(std::move(gradients));
    }
  });
  return all;
}

// Weights are rounded masters; all arithmetic of the toy is fp32. Another number of ranks adds
// gradients in another order, so they differ by about 24 * 2^-24 of their size. An update moves a
// master by at most lr, so after 15 steps masters differ by about 15 lr 24 * 2^-24 = 2e-8. Adam
// amplifies this where gradients are noise, but those weights do not change the loss. Weights
// differ only where two masters lie on both sides of a rounding boundary, and then by one unit in
// the last place, at most 2^-7 of a bf16 number. To first order the losses then differ by
//
//   |L - L'| <= sum |dL/dw| 2^-7 |w|
//
// plus the difference of fp32 losses. The test also checks that no weight differs by more.
TEST(Resume, InBf16LossesOnAnotherNumberOfRanksDifferByWhatRoundingMayChange) {
  constexpr float kUnit = 1.0F / 128;
  constexpr int kSteps = 15;
  const TemporaryFolder folder;
  ToyJob job = ToyJob{}.under(Strategy::zero3);
  job.options.compute = DType::bf16;
  job.optimizer = AdamW{.lr = 0.001F};
  const auto saved = train_and_save(job, 5, folder / "saved");
  const Trajectory expected = resumed(job, saved, kSteps);
  for (const int ranks : {1, 3, 8}) {
    const Trajectory found = resumed(job.on(ranks).under(Strategy::zero2), saved, kSteps);
    for (std::size_t step = 0; step < kSteps; ++step) {
      double bound = kWithin.loss * expected.losses[0];
      for (const auto& [name, weights] : expected.weights[step]) {
        const std::vector<float>& others = found.weights[step].at(name);
        const auto trained = expected.gradients[step].find(name);
        if (trained == expected.gradients[step].end()) {
          EXPECT_EQ(weights, others) << name << " is frozen";
          continue;
        }
        const std::vector<float>& gradients = trained->second;
        for (std::size_t i = 0; i < weights.size(); ++i) {
          const float unit = kUnit * std::max(std::abs(weights[i]), std::abs(others[i]));
          ASSERT_LE(std::abs(weights[i] - others[i]), unit) << name << ", " << i;
          bound += std::abs(gradients[i]) * unit;
        }
      }
      EXPECT_NEAR(found.losses[step], expected.losses[step], bound)
          << ranks << " ranks, step " << step;
      EXPECT_LT(bound, 0.05 * expected.losses[step]) << "the bound says nothing";
    }
  }
}

TEST(Resume, ContinuesWithOffloadedState) {
  const TemporaryFolder folder;
  ToyJob job;
  job.options.compute = DType::bf16;
  const auto saved = train_and_save(job.under(Strategy::zero3), 3, folder / "saved");
  for (const Strategy strategy : {Strategy::ddp, Strategy::zero1, Strategy::hybrid}) {
    for (const Offload offload : {Offload::optimizer, Offload::state}) {
      job.options.offload = offload;
      const std::string name =
          std::string{to_string(strategy)} + "-" + std::string{to_string(offload)};
      const auto again = load_and_save(job.under(strategy), saved, folder / name);
      EXPECT_EQ(difference(saved, again), "") << name;
    }
  }
}

/// Runs with a model whose tensors exceed one read or write, at odd offsets in files.
void run_large(int ranks, const std::function<void(World&, ShardedModel&)>& body) {
  run_ranks(ranks, [&](World& world) {
    ShardedModel model{world, {.strategy = Strategy::zero3, .compute = DType::bf16}};
    model.add_unit("a", {{"odd", {1001}, true, DType::fp32}, {"weight", {1531, 1501}}});
    model.add_unit("b", {{"weight", {700, 1000}}});
    model.materialize(init::normal(1, 0.1F));
    model.optimize_with(AdamW{});
    body(world, model);
  });
}

TEST(LargeTensors, AreSentInPartsWithoutChangingTheResult) {
  const TemporaryFolder folder;
  std::filesystem::path first;
  run_large(1, [&](World&, ShardedModel& model) {
    first = save(model, folder / "first");
    Checkpointer checkpointer{model, {.folder = folder / "async"}};
    checkpointer.save({});
    checkpointer.finish();
    EXPECT_EQ(difference(first, checkpointer.newest()), "");
    // The masters equal the initial values, which shows that each is at its place.
    SafetensorsReader file{first / "optimizer.safetensors"};
    std::vector<float> expected(1531 * 1501);
    init::fill_normal(1, 1, 0, 0.1F, expected);
    std::vector<float> written(expected.size());
    file.read("a.weight.master", 0, written);
    EXPECT_TRUE(written == expected);
  });
  run_large(3, [&](World& world, ShardedModel& model) {
    (void)load(model, first);
    const auto again = save(model, folder / "again");
    Checkpointer checkpointer{model, {.folder = folder / "async3"}};
    checkpointer.save({});
    checkpointer.finish();
    if (world.rank() != 0) { return; }
    EXPECT_EQ(difference(first, again), "");
    EXPECT_EQ(difference(first, checkpointer.newest()), "");
  });
}

TEST(Conversion, MastersBecomeRemaindersAndBackToTheBit) {
  const TemporaryFolder folder;
  const ToyJob masters = state_formats()[1].second.under(Strategy::zero3);
  const ToyJob remainders = state_formats()[2].second.under(Strategy::zero1).on(3);
  const auto first = train_and_save(masters, 4, folder / "first");
  const auto halves = load_and_save(remainders, first, folder / "halves");
  EXPECT_EQ(difference(first, load_and_save(masters.on(2), halves, folder / "back")), "");
}

// The fp32 job's weights are the bf16 job's masters, which the bf16 job rounds again.
TEST(Conversion, TheMastersOfABf16ModelAreTheWeightsOfAnFp32Model) {
  const TemporaryFolder folder;
  const ToyJob bf16 = state_formats()[1].second.under(Strategy::zero3);
  ToyJob fp32 = ToyJob{}.under(Strategy::hybrid);
  const auto first = train_and_save(bf16, 4, folder / "first");
  const auto wide = load_and_save(fp32, first, folder / "wide");
  const auto back = load_and_save(bf16, wide, folder / "back");
  // Frozen bf16 parameters have no masters but also survive the conversion.
  EXPECT_EQ(difference(first, back), "");
}

TEST(Conversion, MomentsOfAnotherFormatAreRefusedUnlessAskedFor) {
  const TemporaryFolder folder;
  ToyJob fp32;
  fp32.options.align_elems = kMomentBlock;
  ToyJob bf16 = fp32;
  bf16.optimizer_options.moments = MomentFormat::bf16;
  ToyJob int8 = fp32;
  int8.optimizer_options.moments = MomentFormat::int8;
  const auto saved = train_and_save(bf16.under(Strategy::zero3), 4, folder / "saved");
  EXPECT_THAT(message_of<ConfigError>([&] { load_and_save(fp32, saved, folder / "none"); }),
              testing::AllOf(testing::HasSubstr("moments are bf16"),
                             testing::HasSubstr("the model's are fp32")));
  const LoadOptions convert{.convert_moments = true};
  const auto wide = load_and_save(fp32.under(Strategy::zero1), saved, folder / "wide", convert);
  EXPECT_EQ(difference(saved, load_and_save(bf16.on(2), wide, folder / "back", convert)), "");
  // 8 bits lose precision, but the next steps stay close.
  const auto codes = load_and_save(int8.under(Strategy::zero3), saved, folder / "codes", convert);
  std::vector<double> losses[2];
  for (const bool quantised : {false, true}) {
    run_job(bf16.under(Strategy::zero3), [&](World& world, ToyTrainer& trainer) {
      (void)load(trainer.model(), quantised ? codes : saved, {}, convert);
      const std::vector<double> some = trainer.steps(3);
      if (world.rank() == 0) { losses[quantised ? 1 : 0] = some; }
    });
  }
  // bound: 8 bits keep a moment to 2^-7 of it, and 3 steps change the loss by 2 at most
  for (std::size_t i = 0; i < 3; ++i) { EXPECT_NEAR(losses[0][i], losses[1][i], 0.02); }
  EXPECT_NE(losses[0], losses[1]);
}

}  // namespace
}  // namespace tessera::test::save_load_test
