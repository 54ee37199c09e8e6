#include <gtest/gtest.h>

#include <cmath>

#include "cuda/support.hpp"
#include "support/gpt_run.hpp"

// Training on a CUDA device that all ranks share, under every strategy.
namespace tessera::testing {
namespace {

class CudaParity : public ::testing::TestWithParam<std::tuple<int, DType>> {
 protected:
  void SetUp() override {
    if (const std::string reason = test::no_cuda(); !reason.empty()) { GTEST_SKIP() << reason; }
  }
  [[nodiscard]] static GPTRun on_cuda() {
    GPTRun run;
    run.ranks = std::get<0>(GetParam());
    run.options.compute = std::get<1>(GetParam());
    run.world.device = DeviceKind::cuda;
    return run;
  }
};
INSTANTIATE_TEST_SUITE_P(Ranks, CudaParity,
                         ::testing::Combine(::testing::Values(1, 2, 4, 8),
                                            ::testing::Values(DType::fp32, DType::bf16)),
                         [](const auto& test) {
                           return std::to_string(std::get<0>(test.param)) + "_" +
                                  std::string{to_string(std::get<1>(test.param))};
                         });

TEST_P(CudaParity, EveryStrategyGivesTheSameBits) {
  GPTRun run = on_cuda();
  run.options.accumulate = 2;
  run.options.accumulate_mode = AccumulateMode::every;
  run.steps = 5;
  const ToyOutcome expected = train_gpt(run);
  ASSERT_EQ(expected.losses.size(), 5U);
  EXPECT_TRUE(expected.clipped);
  for (const Strategy strategy : all_strategies()) {
    run.options.strategy = strategy;
    EXPECT_EQ(difference(expected, train_gpt(run)), "") << to_string(strategy);
  }
}

// Poisoned slots and collectives that come late and leave late: only events hold this together.
TEST_P(CudaParity, DelaysAndPoisonChangeNoBit) {
  GPTRun run = on_cuda();
  run.steps = 3;
  run.options.strategy = Strategy::zero3;
  const ToyOutcome expected = train_gpt(run);
  run.world.poison = SlotPoison::nan;
  for (const std::uint64_t seed : {1U, 2U, 3U}) {
    run.world.delays = DelayInjection{.seed = seed, .longest = std::chrono::microseconds{500}};
    EXPECT_EQ(difference(expected, train_gpt(run)), "") << "seed " << seed;
  }
}

TEST_P(CudaParity, FiftyLossesAreThoseOfTheCpu) {
  if (std::get<1>(GetParam()) != DType::fp32) { return; }  // of 16 bits the bound says little
  GPTRun run = on_cuda();
  run.options.strategy = Strategy::zero3;
  const ToyOutcome cuda = train_gpt(run);
  run.world.device = DeviceKind::cpu;
  const ToyOutcome cpu = train_gpt(run);
  ASSERT_EQ(cuda.losses.size(), 50U);
  for (std::size_t step = 0; step < 50; ++step) {
    EXPECT_NEAR(cuda.losses[step], cpu.losses[step], 1e-4) << "step " << step + 1;
  }
}

TEST_P(CudaParity, AStepAsOneGraphGivesTheSameBits) {
  GPTRun run = on_cuda();
  if (run.ranks > 1) { return; }
  run.options.accumulate = 2;
  run.steps = 6;
  for (const Strategy strategy : all_strategies()) {
    run.options.strategy = strategy;
    run.first_graph_step = -1;
    const ToyOutcome expected = train_gpt(run);
    run.first_graph_step = 2;
    EXPECT_EQ(difference(expected, train_gpt(run)), "") << to_string(strategy);
  }
}

TEST_P(CudaParity, RanksThatAreThreadsCannotBeOneGraph) {
  GPTRun run = on_cuda();
  if (run.ranks == 1) { return; }
  run.first_graph_step = 1;
  run.steps = 2;
  EXPECT_THROW((void)train_gpt(run), ConfigError);
}

}  // namespace
}  // namespace tessera::testing
