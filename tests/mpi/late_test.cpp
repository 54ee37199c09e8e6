// Reports about ranks that miss a call of all ranks, with groups, over MPI.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <regex>
#include <string>
#include <thread>

#include "mpi/mpi_job.hpp"
#include "support/places.hpp"

namespace tessera::test::late_test {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

// Rank 0 is delayed in a group that the ranks waiting for it do not know, and says so.
TEST(MpiLate, ARankThatIsHeldUpInAGroupIsNotBlamed) {
  MpiJob job{4, {test::kFailingRank, "hold-up-all", "600"}};
  EXPECT_EQ(job.wait(), 4);
  EXPECT_THAT(
      job.output(),
      ContainsRegex("rank [23] waited 600 ms for rank 1, which did not call it; every rank"));
  EXPECT_THAT(job.output(), Not(HasSubstr("for ranks 0")));
}

TEST(MpiLate, AnUnexcusedLateRankIsBlamed) {
  MpiJob job{3, {test::kFailingRank, "hold-up-none", "600"}};
  EXPECT_EQ(job.wait(), 4);
  EXPECT_THAT(job.output(), HasSubstr(" waited 600 ms for rank 1, which did not call it; every"));
}

// The late rank arrives while the others agree on a reporter, and waits for them. The others still
// name it; it names no other rank.
void only_rank_zero_is_named(const MpiJob& job, int deadline_ms) {
  const std::string waited = "rank [12] waited " + std::to_string(deadline_ms) + " ms for rank 0, ";
  const std::string output = job.output();
  EXPECT_THAT(output, ContainsRegex(waited));
  EXPECT_EQ(output.find("error: "), output.rfind("error: ")) << output;
  EXPECT_THAT(output, Not(HasSubstr("rank 0 waited")));
}

TEST(MpiLate, ARankThatArrivesAfterTheDeadlineIsNamedAndNamesNoOther) {
  MpiJob job{3, {test::kFailingRank, "come-late", "600"}};
  EXPECT_EQ(job.wait(), 4);
  only_rank_zero_is_named(job, 600);
}

/// The process id of rank 0, as the job printed it, or 0.
int first_process(const MpiJob& job) {
  std::smatch match;
  const std::string output = job.output();
  const bool found = std::regex_search(output, match, std::regex{"rank 0 pid ([0-9]+)\n"});
  return found ? std::stoi(match[1]) : 0;
}

TEST(MpiLate, ARankThatIsStoppedAndContinuedIsNamedAndNamesNoOther) {
  using namespace std::chrono_literals;
  MpiJob job{3, {test::kFailingRank, "work", "1000"}};
  ASSERT_TRUE(job.wait_for(" pid ", 3) && job.wait_for("\n", 3)) << job.output();
  const int process = first_process(job);
  ASSERT_GT(process, 0) << job.output();
  ASSERT_EQ(::kill(process, SIGSTOP), 0);
  std::this_thread::sleep_for(1200ms);
  ASSERT_EQ(::kill(process, SIGCONT), 0);
  EXPECT_EQ(job.wait(), 4);
  only_rank_zero_is_named(job, 1000);
}

// Its process passes on what the others tell each other.
TEST(MpiLate, RankZeroThatHasStoppedIsReportedOnce) {
  MpiJob job{3, {test::kFailingRank, "work", "1000"}};
  ASSERT_TRUE(job.wait_for(" pid ", 3) && job.wait_for("\n", 3)) << job.output();
  const int process = first_process(job);
  ASSERT_GT(process, 0) << job.output();
  ASSERT_EQ(::kill(process, SIGSTOP), 0);
  EXPECT_EQ(job.wait(), 4);
  only_rank_zero_is_named(job, 1000);
}

// Rank 0 may be writing files: no collective's deadline applies to that.
TEST(MpiLate, TheOthersWaitForAProcessThatIsBusyAfterItsRun) {
  MpiJob job{3, {test::kFailingRank, "slow-exit", "600"}};
  EXPECT_EQ(job.wait(), 0);
  EXPECT_EQ(job.output(), "");
}

}  // namespace
}  // namespace tessera::test::late_test
