// Training as a job of processes joined by NCCL: every strategy, graphs, and comparison with ranks
// that are threads. A launcher runs this. The double adds in rank order, and two numbers have only
// one sum, so both give the same bits. NCCL itself adds more than two in another order: there only
// the losses are compared.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "base/environment.hpp"
#include "cuda/emulation.hpp"
#include "support/a_gpu.hpp"
#include "support/gpt_rounding.hpp"
#include "support/gpt_run.hpp"
#include "support/groups.hpp"
#include "support/mesh_run.hpp"
#include "support/planned_jobs.hpp"
#include "tessera/base/error.hpp"
#include "tessera/world/launch.hpp"
#include "world/host_cores.hpp"

namespace tessera::test::parity_test {
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

/// The first difference between two trainings that is not allowed; empty if none.
std::string unlike(const ToyOutcome& expected, const ToyOutcome& outcome) {
  if (!test::on_a_gpu() || this_job().size <= 2) { return difference(expected, outcome); }
  if (outcome.losses.size() != expected.losses.size()) { return "number of losses"; }
  const GPTRun run = on_cuda();
  const GPTBounds within = between_runs(
      run.config, std::int64_t{run.options.accumulate} * run.ranks * kGPTRunBatch * run.config.seq);
  for (std::size_t i = 0; i < expected.losses.size(); ++i) {
    const double difference = std::abs(outcome.losses[i] - expected.losses[i]);
    if (!(difference <= within.later_loss * expected.losses[0])) {
      return "loss " + std::to_string(i) + " by " +
             std::to_string(outcome.losses[i] - expected.losses[i]);
    }
  }
  return "";
}

/// On rank 0: the difference from `expected`, empty if none.
std::string difference_from(const ToyOutcome& expected, const GPTRun& run) {
  const ToyOutcome outcome = train_gpt(run, kAsProcesses);
  return this_job().rank == 0 ? unlike(expected, outcome) : "";
}

TEST(NcclParity, EveryStrategyTrainsAlike) {
  GPTRun run = on_cuda();
  const ToyOutcome expected = train_gpt(run, kAsProcesses);
  for (const Strategy strategy : all_strategies()) {
    run.options.strategy = strategy;
    EXPECT_EQ(difference_from(expected, run), "") << to_string(strategy);
  }
}

TEST(NcclParity, ProcessesTrainAsThreads) {
  GPTRun run = on_cuda();
  run.options.strategy = Strategy::zero3;
  const ToyOutcome processes = train_gpt(run, kAsProcesses);
  if (this_job().rank == 0) { EXPECT_EQ(unlike(train_gpt(run), processes), ""); }
}

TEST(NcclParity, RanksOfAMachineDivideItsCores) {
  const auto threads = [] {
    int found = 0;
    WorldOptions options;
    options.device = DeviceKind::cuda;
    run([&](World& world) { found = world.host_threads(); }, options);
    return found;
  };
  const auto cores = static_cast<int>(world::own_cores().cores.size());
  EXPECT_EQ(threads(), std::max(1, cores / this_job().size));
  const std::string own = "machine " + std::to_string(this_job().rank);
  ::setenv("TESSERA_MACHINE", own.c_str(), 1);
  EXPECT_EQ(threads(), cores);
  ::unsetenv("TESSERA_MACHINE");
}

TEST(NcclParity, DelaysAndPoisonChangeNothing) {
  GPTRun run = on_cuda();
  run.options.strategy = Strategy::zero3;
  const ToyOutcome expected = train_gpt(run, kAsProcesses);
  run.world.testing.poison = SlotPoison::nan;
  run.world.testing.delays = DelayInjection{.seed = 3, .longest = std::chrono::microseconds{300}};
  EXPECT_EQ(difference_from(expected, run), "");
}

TEST(NcclParity, AStepAsOneGraphTrainsAlike) {
  GPTRun run = on_cuda();
  for (const Strategy strategy : {Strategy::ddp, Strategy::zero3}) {
    run.options.strategy = strategy;
    run.first_graph_step = -1;
    const ToyOutcome expected = train_gpt(run, kAsProcesses);
    run.first_graph_step = 2;
    EXPECT_EQ(difference_from(expected, run), "") << to_string(strategy);
  }
}

// Shard groups and copies: communicators of some of the job's processes.
GPTRun in_groups_of(int ranks) {
  GPTRun run = on_cuda();
  run.config = {.layers = 2, .hidden = 9, .heads = 3, .vocab = 13, .seq = 5};
  run.steps = 2;
  run.options.strategy = Strategy::hybrid;
  run.options.shard_group = ranks;
  return run;
}

TEST(NcclHybrid, GroupsOfProcessesTrainAsThoseOfThreads) {
  const int all = this_job().size;
  for (const int group : divisors(all)) {
    if (all > 4 && (group == 1 || group == all)) { continue; }  // smaller jobs cover these
    GPTRun run = in_groups_of(group);
    run.world.testing.delays = DelayInjection{.seed = 4, .longest = std::chrono::microseconds{100}};
    const ToyOutcome processes = train_gpt(run, kAsProcesses);
    run.world.testing.delays.reset();
    if (this_job().rank == 0) { EXPECT_EQ(unlike(train_gpt(run), processes), "") << group; }
  }
}

TEST(NcclHybrid, OneGroupIsZero3AndGroupsOfOneAreDdp) {
  const int all = this_job().size;
  for (const auto& [like, group] : {std::pair{Strategy::zero3, all}, {Strategy::ddp, 1}}) {
    GPTRun run = in_groups_of(0);
    run.options.strategy = like;
    const ToyOutcome expected = train_gpt(run, kAsProcesses);
    EXPECT_EQ(difference_from(expected, in_groups_of(group)), "") << to_string(like);
  }
}

TEST(NcclHybrid, AStepAsOneGraphTrainsAlike) {
  GPTRun run = in_groups_of(half_of(this_job().size, Strategy::hybrid));
  run.steps = 4;
  const ToyOutcome expected = train_gpt(run, kAsProcesses);
  run.first_graph_step = 2;
  EXPECT_EQ(difference_from(expected, run), "");
}

TEST(NcclHybrid, PlansAreWhatEveryProcessHolds) {
  const LaunchedJob job = this_job();
  const PlannedJob program = planned_jobs().front();
  const ModelOptions model{.strategy = Strategy::hybrid,
                           .shard_group = half_of(job.size, Strategy::hybrid)};
  const std::vector<PlannedRank> planned =
      plan({.ranks = job.size, .backend = {DeviceKind::cuda, CommKind::nccl}},
           [&](World& world) { program.body(world, model); });
  CategoryBytes expected = (job.rank < planned[0].count ? planned[0] : planned[1]).memory.at_peak;
  WorldOptions options;
  options.device = DeviceKind::cuda;
  run(
      [&](World& world) {
        program.body(world, model);
        const CategoryBytes held = world.memory().report().at_peak;
        // NCCL's own memory depends on the machine.
        if (test::on_a_gpu()) { expected[Category::communicator] = held[Category::communicator]; }
        EXPECT_EQ(held, expected);
      },
      options);
}

// Sums along every dimension have two terms: the same bits in any order.
TEST(NcclMesh, GptsOfProcessesTrainAsThoseOfThreads) {
  const std::map<int, std::vector<std::array<int, 3>>> by_size{
      {1, {{1, 1, 1}}}, {2, {{2, 1, 1}, {1, 1, 2}}}, {4, {{2, 2, 1}, {2, 1, 2}, {1, 2, 2}}}};
  const auto meshes = by_size.find(this_job().size);
  if (meshes == by_size.end()) { GTEST_SKIP() << "meshes are of 1, 2 or 4 processes"; }
  for (const auto& [pipe, shard, tensor] : meshes->second) {
    MeshRun run;
    run.config = {.layers = 3, .hidden = 12, .heads = 3, .vocab = 17, .seq = 6};
    run.options = {.strategy = Strategy::zero3,
                   .accumulate = 2,
                   .mesh = {{"pipe", pipe}, {"shard", shard}, {"tensor", tensor}}};
    run.gpt = {.recompute = nn::Recompute::every(2), .sequence_parallel = tensor > 1};
    run.world.device = DeviceKind::cuda;
    const MeshOutcome processes = train_on(run, kAsProcesses);
    if (this_job().rank != 0) { continue; }
    const MeshOutcome threads = train_on(run);
    const std::string mesh = MeshShape{run.options.mesh}.to_string();
    EXPECT_EQ(unlike(threads.seen, processes.seen), "") << mesh;
    EXPECT_EQ(processes.evaluated[0], threads.evaluated[0]) << mesh;
  }
}

TEST(NcclDeterministic, ForcesTheRingWhichGivesTheSameBitsInEveryRun) {
  EXPECT_FALSE(environment("NCCL_ALGO"));
  GPTRun run = in_groups_of(half_of(this_job().size, Strategy::hybrid));
  run.world.deterministic = true;
  const ToyOutcome first = train_gpt(run, kAsProcesses);
  const ToyOutcome second = train_gpt(run, kAsProcesses);
  if (this_job().rank == 0) { EXPECT_EQ(difference(first, second), ""); }
  const bool sums = this_job().size > 1;
  EXPECT_EQ(environment("NCCL_ALGO").value_or("not set"), sums ? "Ring" : "not set");
  ::unsetenv("NCCL_ALGO");
}

TEST(NcclDeterministic, RefusesAlgorithmsWithoutAnOrderBeforeTheRanksMeet) {
  ::setenv("NCCL_ALGO", "NVLS", 1);
  WorldOptions options;
  options.device = DeviceKind::cuda;
  const auto body = [](World&) { ADD_FAILURE() << "started"; };
  options.deterministic = true;
  EXPECT_THROW(run(body, options), ConfigError);
  ::unsetenv("NCCL_ALGO");
}

// A host function would stall the device's streams until a host thread has run it.
TEST(NcclParity, AGraphHoldsNoFunctionOfTheHost) {
  if (!test::Emulation::there()) { GTEST_SKIP() << "counts calls, as the emulated module can"; }
  GPTRun run = on_cuda();
  run.options.strategy = Strategy::zero3;
  run.first_graph_step = 1;
  test::Emulation emulation;
  const std::uint64_t before = emulation.calls("cudaLaunchHostFunc");
  (void)train_gpt(run, kAsProcesses);
  EXPECT_GT(emulation.calls("cudaGraphLaunch"), 0U);
  EXPECT_EQ(emulation.calls("cudaLaunchHostFunc"), before);
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
}  // namespace tessera::test::parity_test
