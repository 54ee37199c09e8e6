// A pipeline's messages, allocations and errors, and how it ends when a rank fails.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "pipeline/random_schedule.hpp"
#include "support/stack.hpp"
#include "tessera/base/error.hpp"
#include "tessera/pipeline/pipeline.hpp"
#include "tessera/world/peer_traffic.hpp"
#include "tessera/world/run.hpp"
#include "tessera/world/simulate.hpp"

namespace tessera::pipeline::pipeline_rules_test {
namespace {

using test::stack_on_one_rank;
using test::StackOutcome;
using ::testing::HasSubstr;

constexpr int kSteps = 2;

Mesh along_pipe(World& world) {
  return {world, {{"pipe", world.size()}}};
}

// Copies of a pipeline, each with its own data: the ranks of a copy differ only along `pipe`.
TEST(Pipeline, RunsOnEveryMeshThatHasPipe) {
  const Schedule schedule = interleaved(2, 2, 4);
  const auto expected = stack_on_one_rank(schedule, kSteps, DeviceKind::cpu, /*data_ranks=*/2);
  const std::vector<std::vector<MeshDim>> meshes = {{{"pipe", 2}, {"shard", 2}},
                                                    {{"replicate", 2}, {"pipe", 2}}};
  for (const auto& dims : meshes) {
    StackOutcome outcome;
    run_ranks(4, [&](World& world) { test::run_stack({world, dims}, schedule, kSteps, outcome); });
    EXPECT_EQ(outcome.all(), expected) << MeshShape{dims}.to_string();
  }
}

// Each link carries one boundary per micro-batch, in both directions.
TEST(Pipeline, SendsEachBoundaryOnceToTheNeighbourAlone) {
  constexpr int kRanks = 4;
  constexpr int kMicroBatches = 8;
  WorldOptions options;
  options.trace = true;
  for (const int chunks : {1, 3}) {
    const Schedule schedule = interleaved(kRanks, chunks, kMicroBatches);
    run_ranks(
        kRanks,
        [&](World& world) {
          StackOutcome outcome;
          test::run_stack(along_pipe(world), schedule, 1, outcome);
          world.quiesce();
          const auto boundaries = [&](int rank, int to) {  // links from `rank` to `to`
            int links = 0;
            for (int stage = 0; stage + 1 < schedule.stages(); ++stage) {
              const int next = (stage + 1) % kRanks;
              links += stage % kRanks == rank && next == to ? 1 : 0;
              links += stage % kRanks == to && next == rank ? 1 : 0;
            }
            return links * kMicroBatches;
          };
          std::vector<std::size_t> expected;
          for (int to = 0; to < kRanks; ++to) {
            expected.push_back(static_cast<std::size_t>(boundaries(world.rank(), to)) *
                               sizeof(float) *
                               static_cast<std::size_t>(test::Stack::kBoundary.elems));
          }
          EXPECT_EQ(peer_traffic(world), expected);
        },
        options);
  }
}

TEST(Pipeline, AllocatesTheStatedBytesOnRanksAndInPlans) {
  constexpr int kRanks = 3;
  const Boundary boundary{.elems = 1000, .dtype = DType::bf16};
  for (const Schedule& schedule :
       {gpipe(kRanks, 7), one_forward_one_backward(kRanks, 7), zero_bubble(kRanks, 7),
        interleaved(kRanks, 2, 6), random_schedule(kRanks, 5)}) {
    const auto expect_bytes = [&](World& world) {
      const auto live = [&] { return world.memory().report().live; };
      const CategoryBytes before = live();
      const Pipeline pipeline{along_pipe(world), schedule, boundary};
      const CategoryBytes after = live();
      const std::size_t needed = Pipeline::bytes_needed(schedule, boundary, world.rank());
      EXPECT_EQ(after[Category::activations] - before[Category::activations], needed);
      EXPECT_EQ(after.total() - before.total(), needed);
      const auto uses = world.memory().report().allocations;
      EXPECT_EQ(pipeline.most_in_flight(),
                most_in_flight(schedule)[static_cast<std::size_t>(world.rank())]);
      EXPECT_EQ(world.memory().report().allocations, uses);
    };
    run_ranks(kRanks, expect_bytes);
    for (int rank = 0; rank < kRanks; ++rank) {
      simulate_rank({.rank = rank, .ranks = kRanks}, [&](World& world) {
        expect_bytes(world);
        StackOutcome outcome;
        test::run_stack(along_pipe(world), schedule, kSteps, outcome);
      });
    }
  }
}

TEST(Pipeline, OneForwardOneBackwardNeedsNoMoreForMoreMicroBatches) {
  const Boundary boundary{.elems = 64};
  for (int place = 0; place < 4; ++place) {
    const auto bytes = [&](int micro_batches) {
      return Pipeline::bytes_needed(one_forward_one_backward(4, micro_batches), boundary, place);
    };
    EXPECT_EQ(bytes(8), bytes(64)) << place;
  }
}

TEST(Pipeline, RefusesSchedulesItCannotRun) {
  run_ranks(2, [](World& world) {
    const Mesh mesh = along_pipe(world);
    const Boundary boundary{.elems = 4};
    const auto refusal = [&](const Schedule& schedule) {
      try {
        const Pipeline made{mesh, schedule, boundary};
      } catch (const ConfigError& error) { return std::string{error.what()}; }
      return std::string{"made"};
    };
    EXPECT_THAT(refusal(gpipe(3, 2)),
                HasSubstr("schedule gpipe is for 3 ranks, but the mesh pipe 2 has 2 along pipe"));
    Schedule held = gpipe(2, 4);
    held.in_flight_limit = 3;
    EXPECT_THAT(refusal(held), HasSubstr("rank 0 would hold the activations of 4 micro-batches"));
    EXPECT_THROW((Pipeline{mesh, gpipe(2, 1), {.elems = 0}}), ContractError);
    Pipeline pipeline{mesh, zero_bubble(2, 2), boundary};
    EXPECT_THROW(pipeline.run({.forward = [](const auto&...) {},
                               .backward = [](const auto&...) {},
                               .backward_weight = {}}),
                 ContractError);
  });
}

TEST(Pipeline, RefusesSchedulesThatDifferBetweenRanks) {
  run_ranks(2, [](World& world) {
    Schedule schedule = gpipe(2, 2);
    if (world.rank() == 1) { std::swap(schedule.ranks[0][0], schedule.ranks[0][1]); }
    try {
      const Pipeline made{along_pipe(world), schedule, {.elems = 4}};
      ADD_FAILURE() << "made";
    } catch (const ContractError& error) {
      EXPECT_THAT(error.what(),
                  HasSubstr("the schedule of a Pipeline differs between ranks: entry 2 is 'forward "
                            "of micro-batch 0 on stage 0 on rank 0' on rank 0 and 'forward of "
                            "micro-batch 1 on stage 0 on rank 0' on rank 1"));
    }
  });
}

// The error of a failing rank reaches all others, whatever it was about to do.
TEST(Pipeline, AFailingStageEndsTheJobWithinSeconds) {
  const Schedule schedule = one_forward_one_backward(4, 6);
  for (std::size_t turn = 0; turn < 12; ++turn) {
    const int failing = static_cast<int>(turn) % 4;
    const auto begin = std::chrono::steady_clock::now();
    try {
      run_ranks(4, [&](World& world) {
        Pipeline pipeline{along_pipe(world), schedule, test::Stack::kBoundary};
        std::size_t made = 0;
        const auto make = [&] {
          if (made++ == turn && world.rank() == failing) { throw FormatError{"lost"}; }
        };
        pipeline.run({.forward = [&](const auto&...) { make(); },
                      .backward = [&](const auto&...) { make(); },
                      .backward_weight = {}});
        world.barrier();
      });
      ADD_FAILURE() << "the loss was not noticed";
    } catch (const FormatError& error) {
      EXPECT_EQ(error.what(), "rank " + std::to_string(failing) + ": lost");
    }
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds{10});
  }
}

}  // namespace
}  // namespace tessera::pipeline::pipeline_rules_test
