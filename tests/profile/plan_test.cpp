// What is planned is what is held, to the byte.
#include "tessera/profile/plan.hpp"

#include <gtest/gtest.h>

#include "support/planned_jobs.hpp"
#include "tessera/base/error.hpp"

namespace tessera::testing {
namespace {

std::vector<MemoryReport> measured(int ranks, const std::function<void(World&)>& body) {
  std::vector<MemoryReport> reports(static_cast<std::size_t>(ranks));
  run_ranks(ranks, [&](World& world) {
    body(world);
    reports[static_cast<std::size_t>(world.rank())] = world.memory().report();
  });
  return reports;
}

/// One report a rank, as `measured`.
std::vector<MemoryReport> spread(const std::vector<PlannedRank>& plan) {
  std::vector<MemoryReport> reports;
  for (const PlannedRank& rank : plan) {
    EXPECT_EQ(rank.rank, std::ssize(reports));
    reports.insert(reports.end(), static_cast<std::size_t>(rank.count), rank.memory);
  }
  return reports;
}

class Plan : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Plan, ::testing::Values(1, 2, 3, 4, 8),
                         ::testing::PrintToStringParamName());

TEST_P(Plan, EqualsWhatEveryRankHoldsToTheByte) {
  for (const PlannedJob& job : planned_jobs()) {
    for (const ModelOptions& options : planned_options()) {
      const auto body = [&](World& world) { job.body(world, options); };
      const std::vector<MemoryReport> planned = spread(plan({.ranks = GetParam()}, body));
      const std::vector<MemoryReport> held = measured(GetParam(), body);
      ASSERT_EQ(planned.size(), held.size());
      for (std::size_t rank = 0; rank < held.size(); ++rank) {
        EXPECT_EQ(difference(planned[rank], held[rank]), "")
            << job.name << ", " << text_of(options) << ", rank " << rank;
        EXPECT_GT(held[rank].peak_bytes, 0U);
      }
    }
  }
}

TEST(PlanOfManyRanks, TellsOnlyRankZeroApart) {
  const auto ranks_of = [](Strategy strategy) {
    return plan({.ranks = 1024},
                [&](World& world) { planned_jobs().front().body(world, {.strategy = strategy}); });
  };
  const std::vector<PlannedRank> zero3 = ranks_of(Strategy::zero3);
  ASSERT_EQ(zero3.size(), 1U);
  EXPECT_EQ(zero3[0].count, 1024);
  const std::vector<PlannedRank> dp = ranks_of(Strategy::dp);
  ASSERT_EQ(dp.size(), 2U);
  EXPECT_EQ(dp[0].count, 1);
  EXPECT_EQ(dp[1].rank, 1);
  EXPECT_EQ(dp[1].count, 1023);
  EXPECT_GT(dp[0].memory.peak_bytes, dp[1].memory.peak_bytes);
}

TEST(PlanForMpi, CountsItsStaging) {
  const auto nothing = [](World&) {};
  const auto staging = [&](CommKind comm, int ranks) {
    return plan({.ranks = ranks, .backend = {.comm = comm}}, nothing)[0]
        .memory.live[Category::communicator];
  };
  EXPECT_EQ(staging(CommKind::local, 4), 0U);
  EXPECT_EQ(staging(CommKind::mpi, 1), 0U);
  EXPECT_EQ(staging(CommKind::mpi, 2), 2 * 2 * (std::size_t{1} << 20U));
  EXPECT_LE(staging(CommKind::mpi, 1000), 2 * (std::size_t{8} << 20U));
}

TEST(PlanOfABudget, RefusesWhatTheRealRunRefuses) {
  const auto body = [](World& world) {
    planned_jobs()[1].body(world, {.strategy = Strategy::ddp});
  };
  const std::size_t peak = plan({.ranks = 2}, body)[0].memory.peak_bytes;
  PlanOptions options{.ranks = 2};
  options.world.budget_bytes = peak;
  EXPECT_EQ(plan(options, body)[0].memory.peak_bytes, peak);
  EXPECT_NO_THROW(run_ranks(2, body, options.world));
  options.world.budget_bytes = peak - 1;
  EXPECT_THROW((void)plan(options, body), OutOfMemory);
  EXPECT_THROW(run_ranks(2, body, options.world), OutOfMemory);
}

TEST(PlanOfNothingReal, IsRefusedWithWhatIsWrong) {
  const auto nothing = [](World&) {};
  EXPECT_THROW((void)plan({.ranks = 0}, nothing), ConfigError);
  EXPECT_THROW((void)plan({.ranks = 1 << 21}, nothing), ConfigError);
  EXPECT_THROW((void)plan({.ranks = 2, .backend = {.device = DeviceKind::cuda}}, nothing),
               ConfigError);
  EXPECT_THROW(simulate_rank({.rank = 2, .ranks = 2}, nothing), ConfigError);
}

}  // namespace
}  // namespace tessera::testing
