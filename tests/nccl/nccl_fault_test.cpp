// Faults specific to NCCL jobs: those of NCCL itself, and of ranks that no launcher ends.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <random>
#include <regex>
#include <thread>

#include "mpi/mpi_job.hpp"
#include "support/a_gpu.hpp"
#include "support/places.hpp"

namespace tessera::test::nccl_fault_test {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;

constexpr int kRanks = 3;
constexpr int kInPairs = 4;
constexpr const char* kDoubleOnly = "NCCL itself does not fail when it is asked to";

int count(const std::string& text, const std::string& in) {
  int found = 0;
  for (auto at = in.find(text); at != std::string::npos; at = in.find(text, at + 1)) { ++found; }
  return found;
}

/// Runs jobs of failing_rank, with `variables` in their environment and the failure `way`.
class NcclFault : public ::testing::Test {
 protected:
  struct End {
    int status = 0;
    std::string output;
    double seconds = 0;
  };

  static End end_of(const std::string& way, int deadline_ms,
                    const std::vector<std::string>& variables, int ranks = kRanks) {
    const auto begin = Clock::now();
    MpiJob job{ranks, command(way, deadline_ms, variables)};
    const int status = job.wait();
    return {status, job.output(), std::chrono::duration<double>(Clock::now() - begin).count()};
  }
  static std::vector<std::string> command(const std::string& way, int deadline_ms,
                                          const std::vector<std::string>& variables) {
    std::vector<std::string> words{"env"};
    words.insert(words.end(), variables.begin(), variables.end());
    words.insert(words.end(), {test::kFailingRank, way, std::to_string(deadline_ms)});
    return words;
  }
};

// This launcher ends no process: all ranks exit by themselves and name the lost rank.
TEST_F(NcclFault, TheSurvivorsOfAKilledRankEndWithinSecondsAndNameIt) {
  std::mt19937 random{20};
  ::setenv("GRACE_S", "30", 1);
  for (int lost = 0; lost < kRanks; ++lost) {
    SCOPED_TRACE(lost);
    MpiJob job{kRanks, command("work", 60'000, {})};
    ASSERT_TRUE(job.wait_for(" pid ", kRanks)) << job.output();
    ASSERT_TRUE(job.wait_for("\n", kRanks));
    std::smatch match;
    const std::string said = job.output();
    const std::regex line{"rank " + std::to_string(lost) + " pid ([0-9]+)\n"};
    ASSERT_TRUE(std::regex_search(said, match, line)) << said;
    std::this_thread::sleep_for(std::chrono::milliseconds{random() % 200});
    const auto begin = Clock::now();
    ASSERT_EQ(::kill(std::stoi(match[1]), SIGKILL), 0);
    EXPECT_NE(job.wait(), 0);
    EXPECT_LT(Clock::now() - begin, std::chrono::seconds{10});
    EXPECT_EQ(count("error: ", job.output()), kRanks - 1) << job.output();
    EXPECT_EQ(count("rank " + std::to_string(lost) + " (", job.output()), kRanks - 1)
        << job.output();
    EXPECT_EQ(count("has left in the middle of the run", job.output()), kRanks - 1) << job.output();
  }
  ::unsetenv("GRACE_S");
}

/// Kills rank 1 of a job that runs `way`, `after` all ranks have printed their process ids. The
/// launcher does not end the job.
std::string end_of_the_others(const std::vector<std::string>& command, int ranks = kRanks,
                              std::chrono::milliseconds after = {}) {
  ::setenv("GRACE_S", "30", 1);
  MpiJob job{ranks, command};
  std::smatch match;
  EXPECT_TRUE(job.wait_for(" pid ", ranks) && job.wait_for("\n", ranks)) << job.output();
  const std::string said = job.output();
  if (std::regex_search(said, match, std::regex{"rank 1 pid ([0-9]+)\n"})) {
    std::this_thread::sleep_for(after);
    const auto begin = Clock::now();
    EXPECT_EQ(::kill(std::stoi(match[1]), SIGKILL), 0);
    EXPECT_NE(job.wait(), 0);
    EXPECT_LT(Clock::now() - begin, std::chrono::seconds{10});
  }
  ::unsetenv("GRACE_S");
  return job.output();
}

/// Numbers of ranks for which NCCL's lazy connections are tested.
class NcclFirstCall : public NcclFault, public ::testing::WithParamInterface<int> {
 protected:
  static constexpr const char* kCall = "all_reduce of batch \"h.3\" (channel gather, sequence 0)";
};
INSTANTIATE_TEST_SUITE_P(Ranks, NcclFirstCall, ::testing::Values(2, 3, 4),
                         ::testing::PrintToStringParamName());

// NCCL blocks before it enqueues the call, as it waits for the rank to connect.
TEST_P(NcclFirstCall, NamesARankThatNeverMakesItByTheDeadline) {
  const int deadline = test::on_a_gpu() ? 8000 : 2000;
  const End end = end_of("miss-first", deadline, {}, GetParam());
  EXPECT_EQ(end.status, 4);
  EXPECT_LT(end.seconds, deadline / 1000.0 + 10);
  EXPECT_THAT(end.output,
              ContainsRegex("error: rank [0-9]: all_reduce of batch \"h.3\" .channel "
                            "gather, sequence 0.: rank [0-9] waited " +
                            std::to_string(deadline) + " ms for rank 1, which did not call it"));
}

TEST_P(NcclFirstCall, NamesARankThatEndsItsProgramInsteadAtOnce) {
  const End end = end_of("miss", 60'000, {}, GetParam());
  EXPECT_EQ(end.status, 4);
  EXPECT_LT(end.seconds, 10);
  EXPECT_THAT(
      end.output,
      ContainsRegex("error: rank [0-9]: all_reduce of batch \"h.3\" .channel "
                    "gather, sequence 0.: rank [0-9] waits for rank 1, whose program has ended"));
}

TEST_P(NcclFirstCall, NamesARankKilledDuringTheCallAndTheCall) {
  const int ranks = GetParam();
  constexpr std::chrono::milliseconds kToTheCall{300};
  const std::string output =
      end_of_the_others(command("miss-first", 60'000, {}), ranks, kToTheCall);
  EXPECT_EQ(count("error: ", output), ranks - 1) << output;
  EXPECT_EQ(count("rank 1 (process ", output), ranks - 1) << output;
  EXPECT_EQ(count("has left in the middle of the run", output), ranks - 1) << output;
  EXPECT_EQ(count(std::string{" was in "} + kCall, output), ranks - 1) << output;
}

// Rank 0 is within the first batch of its pair; the others wait for it elsewhere and time out
// first.
TEST_F(NcclFault, ARankThatIsHeldUpInItsGroupsFirstCallIsNotTakenForTheCause) {
  const int deadline = test::on_a_gpu() ? 12'000 : 3000;
  const std::string waited = " waited " + std::to_string(deadline) + " ms for ";
  const End all = end_of("hold-up-all", deadline, {}, kInPairs);
  EXPECT_EQ(all.status, 4);
  EXPECT_THAT(all.output, HasSubstr(waited + "rank 1, which did not call it; every rank"));
  const End across = end_of("miss-in-group", deadline, {}, kInPairs);
  EXPECT_EQ(across.status, 4);
  EXPECT_THAT(
      across.output,
      HasSubstr("all_reduce of batch \"h.3\" (channel replicas, sequence 0): rank 2" + waited +
                "rank 0, held up by rank 1, which did not call the batch (channel "
                "shard reduce, sequence 0); every rank"));
}

// The group is destroyed before the watchdog sees that its batch has ended.
TEST_F(NcclFault, ARankIsReleasedOnceTheGroupIsDestroyed) {
  const int deadline = test::on_a_gpu() ? 8000 : 1500;
  const End end = end_of("hold-up-and-let-go", deadline, {}, kInPairs);
  EXPECT_EQ(end.status, 4);
  EXPECT_THAT(end.output, HasSubstr("rank 1 waited " + std::to_string(deadline) +
                                    " ms for ranks 0, 2, 3, which did not call it"));
}

// Nothing in the process can end the hanging abort or what waits for it.
TEST_F(NcclFault, AnAbortThatHangsDoesNotKeepTheProcessAlive) {
  if (test::on_a_gpu()) { GTEST_SKIP() << kDoubleOnly; }
  const std::string output =
      end_of_the_others(command("work", 60'000, {"TESSERA_EMULATED_NCCL_ABORT=hangs:0"}));
  EXPECT_EQ(count("has left in the middle of the run", output), kRanks - 1) << output;
  EXPECT_THAT(output, ContainsRegex("error: rank 0: rank 1 .process .* has left .*; NCCL's "
                                    "communicators have not ended within 6 s of that "
                                    ".ncclCommAbort does not return., so the process ends\n"));
}

// The device is late, not a rank.
TEST_F(NcclFault, ADeviceThatIsBehindForLongerThanTheDeadlineIsNoFailure) {
  const int deadline = test::on_a_gpu() ? 6000 : 1000;
  for (const std::string way : {"behind", "behind-in-graph"}) {
    SCOPED_TRACE(way);
    const End end = end_of(way, deadline, {}, 2);
    EXPECT_EQ(end.status, 0);
    EXPECT_EQ(end.output, "");
  }
}

TEST_F(NcclFault, AGraphMayHaveMoreBatchesThanAreWatchedAtATime) {
  const End end = end_of("long-graphs", 20'000, {}, 2);
  EXPECT_EQ(end.status, 0);
  EXPECT_EQ(end.output, "");
}

// Batches of a graph that was never launched are not waited for.
TEST_F(NcclFault, BuildingAGraphMayThrow) {
  const End end = end_of("throw-in-graph", test::on_a_gpu() ? 8000 : 4000, {}, 2);
  EXPECT_EQ(end.status, 0);
  EXPECT_EQ(end.output, "");
}

TEST_F(NcclFault, TheControlPathsReportPrecedesNccls) {
  if (test::on_a_gpu()) { GTEST_SKIP() << kDoubleOnly; }
  const std::string output =
      end_of_the_others(command("work", 60'000, {"TESSERA_EMULATED_NCCL_LOSS=noticed"}));
  EXPECT_EQ(count("has left in the middle of the run", output), kRanks - 1) << output;
}

// NCCL's communicators cannot end while a graph holds their work.
TEST_F(NcclFault, GraphsDoNotDelayTheSurvivorsOfAKilledRank) {
  const std::string output = end_of_the_others(command("graphs", 60'000, {}));
  EXPECT_EQ(count("has left in the middle of the run", output), kRanks - 1) << output;
}

// The rank's own thread blocks in NCCL, and only ending the communicator frees it: this launcher
// kills nothing.
TEST_F(NcclFault, ACallThatHangsInNcclIsEnded) {
  if (test::on_a_gpu()) { GTEST_SKIP() << kDoubleOnly; }
  ::setenv("GRACE_S", "30", 1);
  const End end = end_of("work", 2000, {"TESSERA_EMULATED_NCCL_BLOCKS_AT=5:2"});
  ::unsetenv("GRACE_S");
  EXPECT_EQ(end.status, 4);
  EXPECT_LT(end.seconds, 10);
  EXPECT_EQ(count("error: ", end.output), kRanks) << end.output;
}

// Spellings of numbers that NCCL accepts.
TEST_F(NcclFault, RefusesThatGroupsShareWhatTheyWereSplitFromHas) {
  for (const std::string value : {"1", "01", "0x1", " 2"}) {
    const End end = end_of("succeed", 60'000, {"NCCL_COMM_SPLIT_SHARE_RESOURCES=" + value}, 1);
    EXPECT_EQ(end.status, 2);
    EXPECT_THAT(end.output, HasSubstr("NCCL_COMM_SPLIT_SHARE_RESOURCES=" + value +
                                      " makes communicators share"));
  }
}

TEST_F(NcclFault, RefusesCallsThatNothingCouldEnd) {
  for (const std::string value : {"1", "+1x"}) {
    const End end = end_of("succeed", 60'000, {"NCCL_COMM_BLOCKING=" + value}, 1);
    EXPECT_EQ(end.status, 2);
    EXPECT_THAT(end.output, HasSubstr("NCCL_COMM_BLOCKING=" + value + " makes NCCL's calls wait"));
  }
}

TEST_F(NcclFault, SettingsThatNcclIgnoresAreNotRefused) {
  const End end =
      end_of("succeed", 60'000, {"NCCL_COMM_SPLIT_SHARE_RESOURCES=0x0", "NCCL_COMM_BLOCKING="}, 1);
  EXPECT_EQ(end.status, 0) << end.output;
}

TEST_F(NcclFault, RefusesALibraryThatIsTooOld) {
  if (test::on_a_gpu()) { GTEST_SKIP() << kDoubleOnly; }
  const End end = end_of("succeed", 60'000, {"TESSERA_EMULATED_NCCL_VERSION=21304"});
  EXPECT_EQ(end.status, 2);
  EXPECT_THAT(end.output, AllOf(HasSubstr("NCCL 2.13.4 is too old: 2.14.0 or later is needed; "
                                          "loaded was /"),
                                HasSubstr("; the CUDA module was built with 2.")));
}

TEST_F(NcclFault, AFaultInNcclEndsTheJobWithNcclsMessage) {
  if (test::on_a_gpu()) { GTEST_SKIP() << kDoubleOnly; }
  const End end = end_of("work", 60'000, {"TESSERA_EMULATED_NCCL_FAILS_AT=40:2"});
  EXPECT_EQ(end.status, 4);
  EXPECT_LT(end.seconds, 10);
  EXPECT_THAT(end.output, AllOf(AnyOf(HasSubstr("error: rank 2: NCCL's communicator "),
                                      HasSubstr("error: rank 2: ncclGroupEnd failed: ")),
                                HasSubstr("unhandled system error"), HasSubstr("NCCL_DEBUG=INFO")));
}

TEST_F(NcclFault, AStartThatFailsOnOneRankEndsAll) {
  if (test::on_a_gpu()) { GTEST_SKIP() << kDoubleOnly; }
  const End end = end_of("succeed", 60'000, {"TESSERA_EMULATED_NCCL_INIT=fails:1"});
  EXPECT_EQ(end.status, 4);
  EXPECT_LT(end.seconds, 10);
  EXPECT_THAT(end.output, HasSubstr("error: rank 1: ncclCommInitRankConfig failed"));
}

TEST_F(NcclFault, AStartThatHangsEndsByTheDeadline) {
  if (test::on_a_gpu()) { GTEST_SKIP() << kDoubleOnly; }
  const End end = end_of("succeed", 2000, {"TESSERA_EMULATED_NCCL_INIT=hangs:1"});
  EXPECT_EQ(end.status, 4);
  EXPECT_LT(end.seconds, 10);
  EXPECT_THAT(end.output, AllOf(HasSubstr("ncclCommInitRankConfig of NCCL's communicator gather"),
                                HasSubstr("within 2000 ms")));
}

// Rank 0 shares no group with the lost rank; rank 2 waits for it in one.
TEST_F(NcclFault, AKilledRankEndsOtherGroupsToo) {
  const std::string output = end_of_the_others(command("groups", 60'000, {}));
  EXPECT_EQ(count("rank 1 (", output), kRanks - 1) << output;
  EXPECT_EQ(count("has left in the middle of the run", output), kRanks - 1) << output;
}

TEST_F(NcclFault, DifferentBatchesOfAGroupAreNamedByTheJobsRanks) {
  const End end = end_of("differ-in-group", 60'000, {});
  EXPECT_EQ(end.status, 4);
  EXPECT_LT(end.seconds, 10);
  EXPECT_THAT(end.output,
              HasSubstr("error: rank 1: ranks disagree on collective 0 of channel all but 0: entry "
                        "0 of batch \"x\": rank 2 issued all_reduce of 3 fp32 (sum) where rank 1 "
                        "issued all_reduce of 4 fp32 (sum)"));
}

// The kill may fall anywhere in a step: kernels of several communicators may wait for the lost
// rank.
TEST_F(NcclFault, AKilledRankOfAMeshIsNamedWithItsCoordinates) {
  const std::string output = end_of_the_others(command("mesh-work", 60'000, {}), 4);
  EXPECT_THAT(output, HasSubstr("rank 1 (pipe 0, shard 1) (")) << output;
  EXPECT_EQ(count("has left in the middle of the run", output), 3) << output;
}

TEST_F(NcclFault, AKilledRankEndsAModelThatIsShardedInPairs) {
  const std::string output = end_of_the_others(command("pairs", 60'000, {}), kInPairs);
  EXPECT_EQ(count("rank 1 (", output), kInPairs - 1) << output;
  EXPECT_EQ(count("has left in the middle of the run", output), kInPairs - 1) << output;
}

// NCCL ends no communicator while a kernel of another one waits for a peer, and both ranks have
// such kernels.
TEST_F(NcclFault, RanksThatThrowTogetherEndTheirCommunicatorsTogether) {
  const End end = end_of("pair-throws", 60'000, {}, kInPairs);
  EXPECT_EQ(end.status, 2);
  EXPECT_LT(end.seconds, 10);
  EXPECT_THAT(end.output, HasSubstr(": cannot go on\n"));
}

TEST_F(NcclFault, DestroyingAGroupWithWorkInFlightEndsTheJob) {
  const End end = end_of("front-in-group", 60'000, {});
  EXPECT_EQ(end.status, 2);
  EXPECT_LT(end.seconds, 10);
  EXPECT_EQ(count("error: rank 1: cannot go on\n", end.output), 1) << end.output;
}

// A graph normally holds the batch after its owner is destroyed.
TEST_F(NcclFault, DestroyingAGroupKeepsWhatAGraphHolds) {
  const End end = end_of("leave-group-in-graph", 60'000, {});
  EXPECT_EQ(end.status, 0);
  EXPECT_EQ(end.output, "");
}

TEST_F(NcclFault, DestroyingAGroupWaitsForARankUntilTheDeadline) {
  const int deadline = test::on_a_gpu() ? 6000 : 1000;
  const End end = end_of("leave-group-alone", deadline, {});
  EXPECT_EQ(end.status, 4);
  EXPECT_LT(end.seconds, 15);
  EXPECT_THAT(end.output, HasSubstr("all_reduce of batch \"x\" (channel all, sequence 1): rank "));
  EXPECT_THAT(end.output, HasSubstr(" ms for rank 1, which did not call it"));
}

TEST_F(NcclFault, ContinuingAfterAWithdrawalReportsTheCause) {
  const End end = end_of("withdraw", 60'000, {});
  EXPECT_EQ(end.status, 4);
  EXPECT_LT(end.seconds, 10);
  EXPECT_THAT(
      end.output,
      HasSubstr("error: rank 1: NCCL's communicator gather was ended, like all of the rank's: "
                "all_reduce of batch \"x\" (channel all, sequence 1) was "
                "withdrawn; a rank that withdraws work in progress can make no more calls"));
}

TEST_F(NcclFault, GroupsEndBeforeWhatTheyWereSplitFrom) {
  const End end = end_of("split", 60'000, {});
  EXPECT_EQ(end.status, 0);
  EXPECT_EQ(end.output, "");
}

TEST_F(NcclFault, ASplitThatFailsOnOneRankEndsAll) {
  if (test::on_a_gpu()) { GTEST_SKIP() << kDoubleOnly; }
  const End end = end_of("split", 60'000, {"TESSERA_EMULATED_NCCL_SPLIT=fails:1"});
  EXPECT_EQ(end.status, 4);
  EXPECT_LT(end.seconds, 10);
  EXPECT_THAT(end.output, AnyOf(HasSubstr("error: rank 1: ncclCommSplit for \"all 0\" failed: "),
                                HasSubstr("error: rank 1: NCCL's communicator reduce has failed")));
}

// The channels are "shard gather" and "shard reduce".
TEST_F(NcclFault, ASecondSplitThatFailsEndsTheFirstOnAll) {
  if (test::on_a_gpu()) { GTEST_SKIP() << kDoubleOnly; }
  const End end = end_of("pairs", 60'000, {"TESSERA_EMULATED_NCCL_SPLIT_FAILS_AT=1:1"}, kInPairs);
  EXPECT_EQ(end.status, 4);
  EXPECT_LT(end.seconds, 10);
  EXPECT_THAT(end.output,
              AnyOf(HasSubstr("error: rank 1: ncclCommSplit for \"shard reduce 0\" failed: "),
                    HasSubstr("error: rank 1: NCCL's communicator reduce has failed")));
}

TEST_F(NcclFault, ARankThatFailsInASplitEndsAll) {
  if (test::on_a_gpu()) { GTEST_SKIP() << kDoubleOnly; }
  const End end = end_of("abort-in-split", 60'000, {"TESSERA_EMULATED_NCCL_SPLIT=hangs:1"});
  EXPECT_EQ(end.status, 4);
  EXPECT_LT(end.seconds, 10);
  EXPECT_EQ(count("error: rank 1: stop now\n", end.output), 1) << end.output;
}

// The call would wait for work in the graph, which starts only after it.
TEST_F(NcclFault, RefusesToMakeAGroupDuringACapture) {
  const End end = end_of("split-in-graph", 60'000, {});
  EXPECT_EQ(end.status, 2);
  EXPECT_LT(end.seconds, 10);
  EXPECT_THAT(
      end.output,
      HasSubstr("split \"all\": a graph is being captured and cannot hold a new communicator"));
}

TEST_F(NcclFault, ASplitThatHangsEndsByTheDeadline) {
  if (test::on_a_gpu()) { GTEST_SKIP() << kDoubleOnly; }
  const End end = end_of("split", 3000, {"TESSERA_EMULATED_NCCL_SPLIT=hangs:1"});
  EXPECT_EQ(end.status, 4);
  EXPECT_LT(end.seconds, 10);
  EXPECT_THAT(end.output,
              AllOf(HasSubstr("ncclCommSplit for \"all 0\" of NCCL's communicator reduce"),
                    HasSubstr("within 3000 ms")));
}

TEST_F(NcclFault, ALibraryThatCannotSplitSaysSo) {
  if (test::on_a_gpu()) { GTEST_SKIP() << kDoubleOnly; }
  const End end = end_of("split", 60'000, {"TESSERA_EMULATED_NCCL_VERSION=21703"});
  EXPECT_EQ(end.status, 2);
  EXPECT_THAT(
      end.output,
      HasSubstr("split \"all\": NCCL 2.17.3 is too old: 2.18.1 or later is needed; loaded was /"));
}

TEST_F(NcclFault, RanksThatShareAGpuAreNamed) {
  const End end = end_of("succeed", 60'000, {"NCCL_HOSTID=one"});
  EXPECT_EQ(end.status, 4);
  EXPECT_LT(end.seconds, 10);
  EXPECT_EQ(count("error: ", end.output), 1) << end.output;
  EXPECT_THAT(end.output, HasSubstr("error: rank 0: ranks 0 and 1 would share the GPU"));
}

TEST_F(NcclFault, ARankWithoutADeviceEndsAll) {
  const End end =
      end_of("succeed", 60'000, {"TESSERA_EMULATED_CUDA_DEVICES=0", "CUDA_VISIBLE_DEVICES="});
  EXPECT_EQ(end.status, 2);
  EXPECT_LT(end.seconds, 10);
  // One error if the ranks find out at about the same time, which a busy machine may prevent.
  EXPECT_GE(count("error: ", end.output), 1) << end.output;
}

TEST_F(NcclFault, AJobOfOneWorks) {
  const End end = end_of("succeed", 60'000, {}, 1);
  EXPECT_EQ(end.status, 0);
  EXPECT_EQ(end.output, "");
}

}  // namespace
}  // namespace tessera::test::nccl_fault_test
