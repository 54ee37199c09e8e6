// Ranks that are processes give the bits of ranks that are threads. Run under mpirun.
#include <gtest/gtest.h>

#include <cmath>

#include "support/groups.hpp"
#include "support/mesh_run.hpp"
#include "support/planned_jobs.hpp"
#include "support/toy_model.hpp"
#include "tessera/world/launch.hpp"

namespace tessera::test::parity_test {
namespace {

const StartRanks kAsProcesses = [](int, const std::function<void(World&)>& body,
                                   const WorldOptions& options) { run(body, options); };

/// Trains as this job's processes, then, on rank 0, as threads, and compares.
void expect_same_bits(ToyRun toy) {
  const auto job = launched_job();
  ASSERT_TRUE(job) << "start this program with mpirun";
  toy.ranks = job->size;
  const ToyOutcome processes = run_toy(toy, kAsProcesses);
  if (job->rank != 0) { return; }
  ASSERT_EQ(std::ssize(processes.losses), toy.steps);
  ToyOutcome threads = run_toy(toy);
  threads.masters = processes.masters;  // only of this process's rank
  EXPECT_EQ(difference(threads, processes), "");
}

class MpiParity : public ::testing::TestWithParam<Strategy> {};
INSTANTIATE_TEST_SUITE_P(Strategies, MpiParity, ::testing::ValuesIn(all_strategies()),
                         [](const auto& tested) { return std::string{to_string(tested.param)}; });

TEST_P(MpiParity, ProcessesGiveTheBitsOfThreads) {
  ToyRun toy;
  toy.options.strategy = GetParam();
  expect_same_bits(toy);
}

TEST_P(MpiParity, NormsAndMultipliedGradientsToo) {
  ToyRun toy;
  toy.options.strategy = GetParam();
  toy.options.accumulate = 2;
  toy.steps = 4;
  toy.halves_a_block = true;
  expect_same_bits(toy);
}

TEST_P(MpiParity, AlsoWithDelaysPoisonedSlotsAndMicroBatchesInFlight) {
  ToyRun toy;
  toy.options.strategy = GetParam();
  toy.options.accumulate = 3;
  toy.schedule = "FFBFBB";
  toy.options.prefetch = 2;
  toy.steps = 5;
  toy.world.testing.poison = SlotPoison::nan;
  toy.world.testing.delays = DelayInjection{.seed = 11, .longest = std::chrono::microseconds{200}};
  expect_same_bits(toy);
}

TEST_P(MpiParity, AnInfOnOneProcessIsSkippedByAllAsByThreads) {
  ToyRun toy;
  toy.options.strategy = GetParam();
  toy.options.accumulate = 2;
  toy.options.loss_scaling = {.mode = LossScaleMode::dynamic, .growth_interval = 3};
  const int last = launched_job() ? launched_job()->size - 1 : 0;
  toy.spoilt = {{.value = HUGE_VALF, .rank = last, .step = 2},
                {.value = std::nanf(""), .rank = 0, .step = 5, .micro_batch = 1}};
  expect_same_bits(toy);
}

// Shard groups and copies: communicators of some of the job's processes.
TEST(MpiHybrid, ShardGroupsOfProcessesGiveTheBitsOfThreads) {
  const int ranks = launched_job() ? launched_job()->size : 1;
  for (const int group : divisors(ranks)) {
    ToyRun toy;
    toy.options.strategy = Strategy::hybrid;
    toy.options.shard_group = group;
    toy.options.accumulate = 2;
    toy.steps = 5;
    toy.world.testing.delays = DelayInjection{.seed = 4, .longest = std::chrono::microseconds{200}};
    expect_same_bits(toy);
  }
}

// Stages, shards and parts of layers: messages between processes that are not neighbours.
TEST(MpiMesh, AGptOnAMeshOfProcessesHasTheBitsOfThreadsAndHoldsWhatWasPlanned) {
  const auto job = launched_job();
  ASSERT_TRUE(job) << "start this program with mpirun";
  const std::vector<std::vector<MeshDim>> meshes = {
      {{"shard", 1}},
      {{"pipe", 2}},
      {{"shard", 1}, {"tensor", 3}},
      {{"pipe", 2}, {"tensor", 2}},
  };
  if (job->size > std::ssize(meshes)) { GTEST_SKIP() << "meshes of up to 4 processes"; }
  MeshRun mesh;
  mesh.options = {.strategy = Strategy::zero3,
                  .accumulate = 3,
                  .mesh = meshes[static_cast<std::size_t>(job->size) - 1]};
  mesh.gpt.sequence_parallel = job->size > 2;
  const MeshOutcome processes = train_on(mesh, kAsProcesses);
  const auto rank = static_cast<std::size_t>(job->rank);
  EXPECT_EQ(difference(planned_on(mesh, job->rank, CommKind::mpi), processes.memory[rank]), "");
  if (job->rank != 0) { return; }
  EXPECT_EQ(difference(train_on(mesh).seen, processes.seen), "");
}

// Eight processes share few processors: each job takes a third of the options there.
TEST(MpiPlan, EqualsEveryProcesssMemoryToTheByte) {
  const auto launched = launched_job();
  ASSERT_TRUE(launched) << "start this program with mpirun";
  const std::size_t part = launched->size > 4 ? 3 : 1;
  std::size_t first = 0;
  for (const PlannedJob& job : planned_jobs()) {
    const std::vector<ModelOptions> all = planned_options(launched->size);
    for (std::size_t i = first++ % part; i < all.size(); i += part) {
      const ModelOptions& options = all[i];
      const std::vector<PlannedRank> planned =
          plan({.ranks = launched->size, .backend = {.comm = CommKind::mpi}},
               [&](World& world) { job.body(world, options); });
      const PlannedRank& mine = launched->rank < planned[0].count ? planned[0] : planned[1];
      run([&](World& world) {
        job.body(world, options);
        EXPECT_EQ(difference(mine.memory, world.memory().report()), "")
            << job.name << ", " << text_of(options) << ", rank " << world.rank();
      });
    }
  }
}

TEST(MpiWorld, NamesItsCommunicatorAndCountsItsScratchMemory) {
  std::size_t before = 0;
  run([&](World& world) {
    EXPECT_EQ(world.size(), launched_job()->size);
    EXPECT_EQ(world.rank(), launched_job()->rank);
    EXPECT_EQ(world.gather_channel().communicator.name(), "mpi");
    before = world.memory().report().live[Category::communicator];
    EXPECT_EQ(world.memory().report().live.total(), before);
    EXPECT_EQ(before == 0, world.size() == 1);
    EXPECT_LE(before, 2U * (8U << 20U));

    std::vector<float> data(3'000'000, 1.0F);
    const Channel channel = world.reduce_channel();
    channel.communicator.submit(
        Batch{"big"}.all_reduce(View{data.data(), std::ssize(data), DType::fp32}), channel.stream);
    channel.stream.wait();
    const MemoryReport report = world.memory().report();
    EXPECT_EQ(report.live.total(), before) << "no more than at the start";
    EXPECT_EQ(report.peak_bytes, before);
  });
}

TEST(MpiWorld, RunsFollowOneAnother) {
  for (int i = 0; i < 3; ++i) {
    double sum = 0.0;
    run([&](World& world) { sum = world.sum(1.0); });
    EXPECT_EQ(sum, launched_job()->size);
  }
}

}  // namespace
}  // namespace tessera::test::parity_test
