#include <gtest/gtest.h>

#include <tuple>

#include "cuda/support.hpp"
#include "support/gpt_rounding.hpp"
#include "support/gpt_run.hpp"
#include "support/groups.hpp"
#include "support/mesh_rounding.hpp"
#include "support/mesh_run.hpp"
#include "support/planned_jobs.hpp"

// Training on a CUDA device that all ranks share, under every strategy.
namespace tessera::test::parity_test {
namespace {

template <class Parameter>
class OnCuda : public ::testing::TestWithParam<Parameter> {
 protected:
  void SetUp() override {
    if (const std::string reason = test::no_cuda(); !reason.empty()) { GTEST_SKIP() << reason; }
  }
  [[nodiscard]] static GPTRun gpt_run(int ranks, DType compute) {
    GPTRun run;
    run.ranks = ranks;
    run.options.compute = compute;
    run.world.device = DeviceKind::cuda;
    return run;
  }
};

class CudaMesh : public OnCuda<DType> {};
INSTANTIATE_TEST_SUITE_P(Computes, CudaMesh, ::testing::Values(DType::fp32, DType::bf16),
                         [](const auto& test) { return std::string{to_string(test.param)}; });

TEST_P(CudaMesh, StagesShardsAndPartsOfLayersLearnWhatOneRankLearnsAndHoldWhatWasPlanned) {
  MeshRun run;
  run.world.device = DeviceKind::cuda;
  run.world.testing.poison = SlotPoison::nan;
  run.world.testing.delays = DelayInjection{.seed = 5, .longest = std::chrono::microseconds{300}};
  run.options = {.strategy = Strategy::zero3,
                 .compute = GetParam(),
                 .accumulate = 2,
                 .mesh = {{"pipe", 2}, {"shard", 2}, {"tensor", 2}}};
  run.gpt = {.recompute = nn::Recompute::every(2), .sequence_parallel = GetParam() == DType::bf16};
  const MeshOutcome expected = train_on(on_one_rank(run));
  const MeshOutcome outcome = train_on(run);
  if (GetParam() == DType::fp32) {
    const GPTBounds within =
        between_runs(run.config, run.batch * run.config.seq * run.options.accumulate * 2);
    const FarthestTensor gradient =
        farthest(expected.seen.first_gradients, outcome.seen.first_gradients);
    EXPECT_LE(gradient.difference, within.gradient) << gradient.name;
    EXPECT_NEAR(outcome.seen.losses.back(), expected.seen.losses.back(),
                within.later_loss * expected.seen.losses[0]);
  } else {
    MeshRun in_fp32 = run;
    in_fp32.options.compute = DType::fp32;
    expect_within_rounding(outcome, expected, train_on(on_one_rank(in_fp32)),
                           static_cast<std::size_t>(run.steps) + 1);
  }
  for (int rank = 0; rank < ranks_of(run); ++rank) {
    EXPECT_EQ(difference(planned_on(run, rank), outcome.memory[static_cast<std::size_t>(rank)]), "")
        << rank;
  }
}

class CudaParity : public OnCuda<std::tuple<int, DType>> {
 protected:
  [[nodiscard]] static GPTRun on_cuda() {
    return gpt_run(std::get<0>(GetParam()), std::get<1>(GetParam()));
  }
};
INSTANTIATE_TEST_SUITE_P(Ranks, CudaParity,
                         ::testing::Values(std::tuple{1, DType::fp32}, std::tuple{2, DType::bf16},
                                           std::tuple{2, DType::fp32}, std::tuple{4, DType::bf16},
                                           std::tuple{8, DType::fp32}),
                         [](const auto& test) {
                           return std::to_string(std::get<0>(test.param)) + "_" +
                                  std::string{to_string(std::get<1>(test.param))};
                         });

TEST_P(CudaParity, EveryStrategyGivesTheSameBits) {
  GPTRun run = on_cuda();
  run.options.accumulate = 2;
  run.options.accumulate_mode = AccumulateMode::every;
  run.steps = 3;
  const ToyOutcome expected = train_gpt(run);
  ASSERT_EQ(expected.losses.size(), 3U);
  EXPECT_TRUE(expected.clipped);
  for (const Strategy strategy : all_strategies()) {
    run.options.strategy = strategy;
    run.options.shard_group = groups_of_one(strategy);
    EXPECT_EQ(difference(expected, train_gpt(run)), "") << to_string(strategy);
  }
}

// Slots are poisoned and collectives start and end late, so a missing event changes the result.
TEST_P(CudaParity, DelaysAndPoisonChangeNoBit) {
  GPTRun run = on_cuda();
  run.steps = 3;
  run.options.strategy = Strategy::zero3;
  const ToyOutcome expected = train_gpt(run);
  run.world.testing.poison = SlotPoison::nan;
  for (const std::uint64_t seed : {1U, 2U}) {
    run.world.testing.delays =
        DelayInjection{.seed = seed, .longest = std::chrono::microseconds{500}};
    EXPECT_EQ(difference(expected, train_gpt(run)), "") << "seed " << seed;
  }
}

// Updates on the host, and updates on the device with state from the host, give the bits of updates
// without offload.
TEST_P(CudaParity, AnOffloadedOptimizerChangesNoBit) {
  GPTRun run = on_cuda();
  run.steps = 3;
  run.options.accumulate_mode = AccumulateMode::every;
  for (const int accumulate : {1, 2}) {
    run.options.accumulate = accumulate;
    run.options.strategy = Strategy::zero3;
    const ToyOutcome expected = train_gpt(run);
    // Each strategy runs one number of micro-batches with fp32 and the other with bf16.
    int turn = run.options.compute == DType::fp32 ? 0 : 1;
    for (const Strategy strategy : all_strategies()) {
      const bool optimizer_too = turn++ % 2 == accumulate - 1;
      for (const Offload offload : {Offload::optimizer, Offload::state}) {
        const bool state = offload == Offload::state;
        if (state ? accumulate == 1 : !optimizer_too) { continue; }  // once is enough for state
        GPTRun offloaded = run;
        offloaded.options.strategy = strategy;
        offloaded.options.shard_group = groups_of_one(strategy);
        offloaded.options.offload = offload;
        offloaded.options.offload_keep = accumulate == 2 ? 0.4F : 0.0F;
        offloaded.world.testing.poison = SlotPoison::nan;
        // State moves in many small copies, so their delays are short.
        const std::chrono::microseconds longest{state ? 30 : 300};
        offloaded.world.testing.delays = DelayInjection{.seed = 4, .longest = longest};
        EXPECT_EQ(difference(expected, train_gpt(offloaded)), "")
            << to_string(strategy) << " accumulate " << accumulate << " " << to_string(offload);
      }
    }
  }
}

// The model is large enough to give each thread a part.
TEST_P(CudaParity, HostThreadsChangeNoBit) {
  GPTRun run = on_cuda();
  run.steps = 2;
  run.config = {.layers = 1, .hidden = 32, .heads = 2, .vocab = 1031, .seq = 11};
  run.options.strategy = Strategy::zero2;
  const ToyOutcome expected = train_gpt(run);
  run.options.offload = Offload::optimizer;
  for (const int threads : {1, 3}) {
    run.world.host_threads = threads;
    EXPECT_EQ(difference(expected, train_gpt(run)), "") << threads << " threads";
  }
}

class CudaLosses : public OnCuda<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, CudaLosses, ::testing::Values(1, 4),
                         ::testing::PrintToStringParamName());

// The learning rate lets the loss fall steadily. Where it jumps, two orders of summation under Adam
// differ in the third digit after fifty steps.
TEST_P(CudaLosses, AreThoseOfTheCpuForFiftySteps) {
  GPTRun run = gpt_run(GetParam(), DType::fp32);
  run.lr = 1e-3F;
  run.options.strategy = Strategy::zero3;
  const ToyOutcome cuda = train_gpt(run);
  run.world.device = DeviceKind::cpu;
  const ToyOutcome cpu = train_gpt(run);
  ASSERT_EQ(cuda.losses.size(), 50U);
  EXPECT_LT(cpu.losses.back(), cpu.losses.front());
  const GPTBounds within = between_runs(run.config, run.ranks * kGPTRunBatch * run.config.seq);
  for (std::size_t step = 0; step < 50; ++step) {
    EXPECT_NEAR(cuda.losses[step], cpu.losses[step], within.later_loss * cpu.losses[0])
        << "step " << step + 1;
  }
}

class CudaOutputs : public OnCuda<DType> {};
INSTANTIATE_TEST_SUITE_P(DTypes, CudaOutputs, ::testing::Values(DType::fp32, DType::bf16),
                         [](const auto& test) { return std::string{to_string(test.param)}; });

// In 16 bits a product applies GELU before it rounds, so a recomputed GELU may differ by one
// rounding. This affects the gradient of only one weight, equally under every strategy.
TEST_P(CudaOutputs, ChangeNoBitWhenRecomputedExceptGeluIn16Bits) {
  GPTRun run = gpt_run(2, GetParam());
  run.steps = 3;
  run.config.hidden = 24;  // GELU in the product
  const ToyOutcome expected = train_gpt(run);
  run.gpt.recompute = nn::Recompute::layer_norm();
  EXPECT_EQ(difference(expected, train_gpt(run)), "");
  run.gpt.recompute = nn::Recompute::gelu() | nn::Recompute::layer_norm();
  const ToyOutcome recomputed = train_gpt(run);
  run.options.strategy = Strategy::zero3;
  EXPECT_EQ(difference(recomputed, train_gpt(run)), "");
  if (run.options.compute == DType::fp32) { EXPECT_EQ(difference(expected, recomputed), ""); }
  EXPECT_EQ(recomputed.losses.front(), expected.losses.front());
  for (std::size_t step = 0; step < expected.losses.size(); ++step) {
    // bound: one weight's gradient differs by a rounding of its terms, 2^-8 / sqrt(44 rows) = 6e-4
    // of it, and the loss by that part of what this weight's steps have changed it by
    EXPECT_NEAR(recomputed.losses[step], expected.losses[step], 1e-3) << "step " << step + 1;
  }
}

class CudaGraphStep : public OnCuda<DType> {};
INSTANTIATE_TEST_SUITE_P(DTypes, CudaGraphStep, ::testing::Values(DType::fp32, DType::bf16),
                         [](const auto& test) { return std::string{to_string(test.param)}; });

TEST_P(CudaGraphStep, GivesTheBitsOfTheStepWithoutAGraphUnderEveryStrategy) {
  GPTRun run = gpt_run(1, GetParam());
  run.options.accumulate = 2;
  run.steps = 5;
  for (const Strategy strategy : all_strategies()) {
    run.options.strategy = strategy;
    run.options.shard_group = groups_of_one(strategy);
    run.first_graph_step = -1;
    const ToyOutcome expected = train_gpt(run);
    run.first_graph_step = 2;
    EXPECT_EQ(difference(expected, train_gpt(run)), "") << to_string(strategy);
  }
}

TEST_P(CudaGraphStep, OfRanksThatAreThreadsIsRefused) {
  GPTRun run = gpt_run(2, GetParam());
  run.first_graph_step = 1;
  run.steps = 2;
  EXPECT_THROW((void)train_gpt(run), ConfigError);
}

}  // namespace
}  // namespace tessera::test::parity_test
