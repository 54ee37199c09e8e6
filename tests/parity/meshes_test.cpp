// A GPT on every mesh: gradients, norms and losses of one rank, and the memory that was planned.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "support/groups.hpp"
#include "support/mesh_run.hpp"
#include "support/planned_jobs.hpp"
#include "tessera/base/error.hpp"
#include "tessera/nn/recompute.hpp"
#include "tessera/pipeline/schedule.hpp"
#include "tessera/world/run.hpp"

namespace tessera::test::meshes_test {
namespace {

/// The training of one rank with the same global batch; made once.
const ToyOutcome& one_rank(const MeshRun& run) {
  static std::map<std::string, ToyOutcome> all;
  const MeshRun one = on_one_rank(run);
  const std::string key = fmt::format("{} {} {} {} {}", one.options.accumulate, one.steps,
                                      one.batch, to_string(one.options.compute), one.gpt.dropout);
  const auto found = all.find(key);
  return found != all.end() ? found->second : all.emplace(key, train_on(one).seen).first->second;
}

std::string text_of(const MeshRun& run) {
  return fmt::format("{} on {}", test::text_of(run.options),
                     MeshShape{run.options.mesh}.to_string());
}

void expect_planned(const MeshRun& run, const MeshOutcome& outcome) {
  for (int rank = 0; rank < ranks_of(run); ++rank) {
    EXPECT_EQ(difference(planned_on(run, rank), outcome.memory[static_cast<std::size_t>(rank)]), "")
        << text_of(run) << ", rank " << rank;
  }
}

/// What is relative to the numbers of one rank: fp32's rounding, or of 16 bits.
struct Tolerance {
  double gradient = 1e-6;
  double norm = 1e-6;
  double loss = 1e-6;
};

void expect_as_one_rank(const MeshRun& run, Tolerance within = {}) {
  SCOPED_TRACE(text_of(run));
  const MeshOutcome outcome = train_on(run);
  const ToyOutcome& expected = one_rank(run);
  const FarthestTensor gradient = farthest(expected.first_gradients, outcome.seen.first_gradients);
  EXPECT_LE(gradient.difference, within.gradient) << gradient.name;
  EXPECT_NEAR(outcome.seen.norms[0], expected.norms[0], within.norm * expected.norms[0]);
  for (std::size_t step = 0; step < expected.losses.size(); ++step) {
    EXPECT_NEAR(outcome.seen.losses[step], expected.losses[step], within.loss * expected.losses[0])
        << "step " << step;
  }
  expect_planned(run, outcome);
}

MeshRun run_on(int pipe, int replicate, int shard, int tensor) {
  MeshRun run;
  run.options.strategy = Strategy::zero3;
  run.options.accumulate = 2;
  run.options.mesh = {
      {"pipe", pipe}, {"replicate", replicate}, {"shard", shard}, {"tensor", tensor}};
  return run;
}

constexpr int kMostRanks = TESSERA_SANITIZED ? 4 : 8;

class OnEveryMesh : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Stages, OnEveryMesh, ::testing::Range(1, 6),
                         [](const auto& test) { return fmt::format("{}", test.param); });

TEST_P(OnEveryMesh, GradientsNormsAndLossesAreThoseOfOneRankAndMemoryIsAsPlanned) {
  const int pipe = GetParam();
  for (int replicate = 1; pipe * replicate <= kMostRanks; ++replicate) {
    for (int shard = 1; pipe * replicate * shard <= kMostRanks; ++shard) {
      for (int tensor = 1; pipe * replicate * shard * tensor <= kMostRanks; ++tensor) {
        expect_as_one_rank(run_on(pipe, replicate, shard, tensor));
      }
    }
  }
}

}  // namespace
}  // namespace tessera::test::meshes_test
