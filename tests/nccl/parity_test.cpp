// Training as a job of processes that NCCL joins, over its double, which adds in rank order: the
// bits of every strategy, of graphs, and of ranks that are threads. Run by a launcher.
#include <gtest/gtest.h>

#include "support/gpt_run.hpp"
#include "tessera/comm/launch.hpp"

namespace tessera::testing {
namespace {

const StartRanks kAsProcesses = [](int, const std::function<void(World&)>& body,
                                   const WorldOptions& options) { run(body, options); };

LaunchedJob this_job() {
  return launched_job(DeviceKind::cuda).value();
}

GPTRun on_cuda() {
  GPTRun run;
  run.ranks = this_job().size;
  run.steps = 3;
  run.options.accumulate = 2;
  run.options.accumulate_mode = AccumulateMode::every;
  run.world.device = DeviceKind::cuda;
  return run;
}

/// On rank 0: what differs from `expected`, empty if nothing.
std::string difference_from(const ToyOutcome& expected, const GPTRun& run) {
  const ToyOutcome outcome = train_gpt(run, kAsProcesses);
  return this_job().rank == 0 ? difference(expected, outcome) : "";
}

TEST(NcclParity, EveryStrategyGivesTheSameBits) {
  GPTRun run = on_cuda();
  const ToyOutcome expected = train_gpt(run, kAsProcesses);
  for (const Strategy strategy : all_strategies()) {
    run.options.strategy = strategy;
    EXPECT_EQ(difference_from(expected, run), "") << to_string(strategy);
  }
}

TEST(NcclParity, ProcessesGiveTheBitsOfThreads) {
  GPTRun run = on_cuda();
  run.options.strategy = Strategy::zero3;
  const ToyOutcome processes = train_gpt(run, kAsProcesses);
  if (this_job().rank == 0) { EXPECT_EQ(difference(train_gpt(run), processes), ""); }
}

TEST(NcclParity, DelaysAndPoisonChangeNoBit) {
  GPTRun run = on_cuda();
  run.options.strategy = Strategy::zero3;
  const ToyOutcome expected = train_gpt(run, kAsProcesses);
  run.world.poison = SlotPoison::nan;
  run.world.delays = DelayInjection{.seed = 3, .longest = std::chrono::microseconds{300}};
  EXPECT_EQ(difference_from(expected, run), "");
}

TEST(NcclParity, AStepAsOneGraphGivesTheSameBits) {
  GPTRun run = on_cuda();
  for (const Strategy strategy : {Strategy::ddp, Strategy::zero3}) {
    run.options.strategy = strategy;
    run.first_graph_step = -1;
    const ToyOutcome expected = train_gpt(run, kAsProcesses);
    run.first_graph_step = 2;
    EXPECT_EQ(difference_from(expected, run), "") << to_string(strategy);
  }
}

TEST(NcclWorld, NamesItsCommunicator) {
  WorldOptions options;
  options.device = DeviceKind::cuda;
  for (int i = 0; i < 3; ++i) {
    run(
        [](World& world) {
          EXPECT_EQ(world.size(), this_job().size);
          EXPECT_EQ(world.rank(), this_job().rank);
          EXPECT_EQ(world.gather_channel().communicator.name(), "nccl");
          EXPECT_EQ(world.sum(1.0), world.size());
        },
        options);
  }
}

}  // namespace
}  // namespace tessera::testing
