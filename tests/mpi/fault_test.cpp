// A job of processes that loses a rank ends within seconds, names the rank and the cause, and exits
// with the documented status.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <ostream>
#include <regex>

#include "mpi/mpi_job.hpp"
#include "support/a_gpu.hpp"
#include "support/places.hpp"

namespace tessera::test::fault_test {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;

constexpr int kRanks = 3;
constexpr std::chrono::seconds kSeconds{10};

struct End {
  int status = 0;
  std::string output;
};

End end_of(const std::string& way, int deadline_ms = 60'000, int ranks = kRanks) {
  const auto begin = Clock::now();
  MpiJob job{ranks, {test::kFailingRank, way, std::to_string(deadline_ms)}};
  const int status = job.wait();
  EXPECT_LT(Clock::now() - begin, kSeconds) << way;
  return {status, job.output()};
}

/// A deadline. It includes the job's start, which takes seconds on a GPU.
int short_deadline_ms(int ms) {
  return test::on_a_gpu() ? ms + 4000 : ms;
}

int count(const std::string& text, const std::string& in) {
  int found = 0;
  for (auto at = in.find(text); at != std::string::npos; at = in.find(text, at + 1)) { ++found; }
  return found;
}

TEST(JobFault, AHealthyJobEndsWithZeroAndPrintsNothing) {
  const End end = end_of("succeed");
  EXPECT_EQ(end.status, 0);
  EXPECT_EQ(end.output, "");
}

struct Thrown {
  const char* way;
  const char* text;
  int status;
  friend std::ostream& operator<<(std::ostream& out, const Thrown& thrown) {
    return out << thrown.way;
  }
};

class JobThrow : public ::testing::TestWithParam<Thrown> {};
INSTANTIATE_TEST_SUITE_P(
    Kinds, JobThrow,
    ::testing::Values(Thrown{"config", "error: rank 1: bad configuration\n", 2},
                      Thrown{"memory", "error: rank 1: out of memory\n", 3},
                      Thrown{"comm", "error: rank 1: no network\n", 4},
                      Thrown{"other", "error: rank 1: a bug\n", 1},
                      Thrown{"all", ": everybody sees it\n", 2},
                      Thrown{"all-but-0", ": everybody sees it\n", 2},
                      Thrown{"split-what-one-has",
                             ": rank 1 exchanges texts where rank 0 makes a communicator for "
                             "\"all\"; every rank must make the same collective calls in the same "
                             "order\n",
                             2},
                      Thrown{"front", "error: rank 1: cannot go on\n", 2}),
    [](const auto& tested) {
      std::string name = tested.param.way;
      std::replace(name.begin(), name.end(), '-', '_');
      return name;
    });

TEST_P(JobThrow, EndsTheJobWithItsReasonAndItsStatus) {
  const auto& [way, text, status] = GetParam();
  const End end = end_of(way);
  EXPECT_EQ(end.status, status);
  EXPECT_THAT(end.output, HasSubstr(text));
  EXPECT_EQ(count("error: ", end.output), 1) << end.output;
}

TEST(JobFault, DifferentBatchesAreNamedOnEveryRankAndMoveNothing) {
  MpiJob job{kRanks, {test::kFailingRank, "differ", "60000"}};
  EXPECT_TRUE(job.wait_for("heard: ", kRanks)) << job.output();
  job.end_input();
  EXPECT_EQ(job.wait(), 4);
  const std::string difference =
      "ranks disagree on collective 0 of channel reduce: entry 0 of batch \"x\": rank 1 issued "
      "all_reduce of 3 fp32 (sum) where rank 0 issued all_reduce of 4 fp32 (sum)";
  EXPECT_EQ(count("heard: " + difference + ", first element 1\n", job.output()), kRanks)
      << job.output();
  EXPECT_EQ(count("error: rank 0: " + difference + "\n", job.output()), 1) << job.output();
}

// Or earlier: the others learn at once that the rank has ended.
TEST(JobFault, AMissingCallEndsTheJobByTheDeadline) {
  const int deadline = short_deadline_ms(2000);
  const End end = end_of("miss", deadline);
  EXPECT_EQ(end.status, 4);
  EXPECT_THAT(end.output, HasSubstr("all_reduce of batch \"h.3\""));
  EXPECT_THAT(end.output, AnyOf(AllOf(HasSubstr("waited " + std::to_string(deadline) + " ms"),
                                      HasSubstr("rank 1, which did not call it")),
                                HasSubstr("waits for rank 1, whose program has ended")));
}

// The deadline is a minute away: the error is due to the end of rank 1.
TEST(JobFault, ARankThatEndsWithoutACollectiveItsPeersMakeIsNamedWithinSeconds) {
  for (const std::string way : {"miss", "miss-exchange"}) {
    const End end = end_of(way);
    EXPECT_EQ(end.status, 4) << way;
    EXPECT_THAT(end.output, HasSubstr("waits for rank 1, whose program has ended")) << way;
  }
}

TEST(JobFault, ARankOfAMeshIsNamedWithItsCoordinates) {
  const End thrown = end_of("mesh-config", 60'000, 4);
  EXPECT_EQ(thrown.status, 2);
  EXPECT_THAT(thrown.output, HasSubstr("error: rank 1 (pipe 0, shard 1): bad configuration\n"));
  const End missed = end_of("mesh-miss", 60'000, 4);
  EXPECT_EQ(missed.status, 4);
  EXPECT_THAT(
      missed.output,
      ContainsRegex(
          "rank [023] .pipe [01], shard [01].: all_reduce of .*: rank [023] "
          ".pipe [01], shard [01]. waits for rank 1 .pipe 0, shard 1., whose program has ended"));
}

TEST(JobFault, AnAbortThatBodiesSwallowIsStillAFailure) {
  const End end = end_of("swallow");
  EXPECT_EQ(end.status, 4);
  EXPECT_EQ(count("error: rank 1: stop now\n", end.output), 1) << end.output;
}

TEST(JobFault, AProcessThatFailsAfterItsRunEndsTheJobWithItsStatus) {
  EXPECT_EQ(end_of("late-exit").status, 7);
}

/// A running job, and the process of one of its ranks.
class WorkingJob {
 public:
  explicit WorkingJob(int deadline_ms)
      : job_{kRanks, {test::kFailingRank, "work", std::to_string(deadline_ms)}} {
    EXPECT_TRUE(job_.wait_for(" pid ", kRanks)) << job_.output();
  }
  /// Sends `signal` to rank 1 and waits for the job's end.
  int signal_and_wait(int signal) {
    std::smatch match;
    EXPECT_TRUE(job_.wait_for("\n", kRanks));
    if (!std::regex_search(job_.output(), match, std::regex{"rank 1 pid ([0-9]+)\n"})) {
      return -2;
    }
    const auto begin = Clock::now();
    EXPECT_EQ(::kill(std::stoi(match[1]), signal), 0);
    const int status = job_.wait();
    seconds_ = std::chrono::duration<double>(Clock::now() - begin).count();
    record(seconds_);
    return status;
  }
  [[nodiscard]] double seconds() const noexcept { return seconds_; }
  [[nodiscard]] const std::string& output() const noexcept { return job_.output(); }

 private:
  static void record(double seconds) {
    ::testing::Test::RecordProperty("seconds", std::to_string(seconds));
  }
  MpiJob job_;
  double seconds_ = 0;
};

TEST(JobFault, AKilledRankEndsTheJobWithinSeconds) {
  WorkingJob job{60'000};
  EXPECT_NE(job.signal_and_wait(SIGKILL), 0);
  EXPECT_LT(job.seconds(), 5.0);
  // The launcher sees it first and reports it.
  EXPECT_THAT(job.output(), ::testing::ContainsRegex("rank 1.*(signal 9|Killed)|KILLED|signal 9"));
}

TEST(JobFault, AStoppedRankEndsTheJobByTheDeadline) {
  const int deadline = short_deadline_ms(1000);
  WorkingJob job{deadline};
  EXPECT_EQ(job.signal_and_wait(SIGSTOP), 4);
  EXPECT_GE(job.seconds(), 0.5) << "not at once";
  EXPECT_LT(job.seconds(), 8.0);
  EXPECT_THAT(job.output(), AllOf(HasSubstr("waited " + std::to_string(deadline) + " ms for rank"),
                                  HasSubstr(" 1")));
}

}  // namespace
}  // namespace tessera::test::fault_test
