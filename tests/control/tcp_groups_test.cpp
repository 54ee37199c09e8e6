// Texts and batches of groups of ranks, and members that do not reach them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "comm/control/tcp/tcp_control_plane.hpp"
#include "control/meeting.hpp"
#include "tessera/base/error.hpp"

namespace tessera::test::tcp_groups_test {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kGroups = 7;  // plus the group's first rank

/// Makes groups of the even and the odd ranks; returns the number of this rank's group.
std::uint64_t join_every_second(comm::TcpControlPlane& control) {
  std::vector<int> members;
  for (int rank = control.rank() % 2; rank < control.size(); rank += 2) { members.push_back(rank); }
  const std::uint64_t number = kGroups + static_cast<std::uint64_t>(members.front());
  control.add_group(number, "every second", members);
  return number;
}

TEST(TcpGroups, TextsOfAGroupComeInTheOrderOfItsRanks) {
  for (const int size : {1, 2, 3, 5}) {
    SCOPED_TRACE(size);
    Meeting meeting{size};
    meeting.run([size](comm::TcpControlPlane& control) {
      const std::uint64_t every_second = join_every_second(control);
      std::vector<std::string> expected;
      for (int rank = control.rank() % 2; rank < size; rank += 2) {
        expected.push_back(std::to_string(rank));
      }
      for (int i = 0; i <= control.rank() % 2; ++i) {  // odd ranks more often than even ones
        EXPECT_EQ(control.exchange({comm::CallKind::gather_text, every_second},
                                   std::to_string(control.rank())),
                  expected);
      }
      EXPECT_EQ(std::ssize(control.exchange(comm::CallKind::gather_text, {})), size);
      end_run(control);
    });
    for (int rank = 0; rank < size; ++rank) { EXPECT_EQ(meeting.error(rank), ""); }
  }
}

TEST(TcpGroups, DifferentBatchesOfAGroupEndTheJobAndItsLowestRankReports) {
  Meeting meeting{5, 60s};
  meeting.run([](comm::TcpControlPlane& control) {
    const comm::CallSeries channel{comm::CallKind::reduce_batch, join_every_second(control)};
    for (int i = 0; i < 30; ++i) {
      const bool odd = control.rank() == 3 && i == 25;
      const std::string code = code_of(step(control.rank() % 2 + i, odd ? 3 : 4));
      EXPECT_EQ(control.note_batch(channel, code), static_cast<std::uint64_t>(i));
    }
    end_run(control);
  });
  for (int rank = 0; rank < 5; ++rank) {
    EXPECT_EQ(meeting.error(rank),
              "ranks disagree on collective 25 of channel every second: entry 0 of batch \"step "
              "26\": rank 3 issued all_reduce of 3 fp32 (sum) where rank 1 issued all_reduce of 4 "
              "fp32 (sum)");
    EXPECT_EQ(meeting.is_echo(rank), rank != 1);
  }
}

TEST(TcpGroups, MissingRanksOfAGroupAreNamedAsInTheJob) {
  Meeting meeting{4};
  meeting.run([](comm::TcpControlPlane& control) {
    const comm::CallSeries channel{comm::CallKind::gather_batch, join_every_second(control)};
    if (control.rank() != 3) { (void)control.note_batch(channel, code_of(step(0, 1))); }
    (void)control.exchange(comm::CallKind::setup, {});
    if (control.rank() == 1) {
      EXPECT_THAT(control.late_text(channel, 0, "the call", 70ms),
                  HasSubstr("rank 1 waited 70 ms for rank 3, which did not call it"));
    } else if (control.rank() == 0) {
      EXPECT_THAT(control.late_text(channel, 0, "the call", 70ms),
                  HasSubstr("for rank 2, which called it and then moved no data"));
      EXPECT_THAT(control.late_text(channel, 1, "the call", 70ms),
                  HasSubstr("for ranks 0, 2, which"));
    }
    (void)control.exchange(comm::CallKind::setup, {});
    end_run(control);
  });
  for (int rank = 0; rank < 4; ++rank) { EXPECT_EQ(meeting.error(rank), ""); }
}

// Pairs of ranks, and every second rank, are the groups of a model in pairs. Rank 1 never makes its
// pair's call, so the batch that rank 0 shares with rank 2 cannot begin on rank 0.
TEST(TcpGroups, NamesTheRankThatHoldsUpAMemberInAnotherGroup) {
  Meeting meeting{4};
  meeting.run([](comm::TcpControlPlane& control) {
    const int rank = control.rank();
    const comm::CallSeries across{comm::CallKind::reduce_batch, join_every_second(control)};
    const int first = rank / 2 * 2;
    const comm::CallSeries pair{comm::CallKind::reduce_batch,
                                20 + static_cast<std::uint64_t>(first)};
    control.add_group(pair.group, "pair", {first, first + 1});
    for (int i = 0; i < 2; ++i) {
      if (rank != 1 || i == 0) { (void)control.note_batch(pair, code_of(step(i, 1))); }
      if (rank % 2 == 0 || i == 0) { (void)control.note_batch(across, code_of(step(i, 1))); }
    }
    (void)control.exchange(comm::CallKind::setup, {});
    if (rank == 0) {
      EXPECT_THAT(control.late_text(pair, 1, "the call", 70ms),
                  HasSubstr("rank 0 waited 70 ms for rank 1, which did not call it"));
    } else if (rank == 2) {
      for (int i = 0; i < 2; ++i) {
        EXPECT_EQ(
            control.late_text(across, 1, "the call", 70ms),
            "the call: rank 2 waited 70 ms, held up by rank 1, which did not call the batch "
            "(channel pair, sequence 1); every rank must make the same collective calls in the "
            "same order");
      }
    }
    (void)control.exchange(comm::CallKind::setup, {});
    end_run(control);
  });
  for (int rank = 0; rank < 4; ++rank) { EXPECT_EQ(meeting.error(rank), ""); }
}

TEST(TcpGroups, ARankThatIsAloneInItsGroupWaitsForNobody) {
  for (const int size : {1, 2}) {
    Meeting meeting{size};
    meeting.run([](comm::TcpControlPlane& control) {
      const auto number = kGroups + static_cast<std::uint64_t>(control.rank());
      control.add_group(number, "alone", {control.rank()});
      const comm::CallSeries channel{comm::CallKind::gather_batch, number};
      EXPECT_EQ(control.note_batch(channel, code_of(step(0, 1))), 0U);
      EXPECT_EQ(control.late_text(channel, 0, "the call", 70ms), "");
      end_run(control);
    });
    for (int rank = 0; rank < size; ++rank) { EXPECT_EQ(meeting.error(rank), ""); }
  }
}

TEST(TcpGroups, ARankThatHasEndedIsMissedByItsGroupsAlone) {
  Meeting meeting{4, 60s};
  const auto begin = Clock::now();
  meeting.run([](comm::TcpControlPlane& control) {
    const std::uint64_t every_second = join_every_second(control);
    const comm::CallSeries channel{comm::CallKind::gather_batch, every_second};
    (void)control.exchange(comm::CallKind::setup, {});
    if (control.rank() == 3) { return end_run(control); }
    if (control.rank() == 1) {
      while (!control.ended_without(channel, 0)) { std::this_thread::sleep_for(1ms); }
      EXPECT_EQ(control.ended_without(channel, 0), 3);
    } else {
      EXPECT_FALSE(control.ended_without(channel, 0));
      EXPECT_EQ(control.exchange({comm::CallKind::gather_text, every_second}, "x").size(), 2U);
    }
    (void)control.exchange({comm::CallKind::reduce_text, every_second}, {});
    end_run(control);
  });
  EXPECT_LT(Clock::now() - begin, 5s);
  EXPECT_THAT(meeting.error(1),
              AllOf(HasSubstr("exchange (channel every second, sequence 0)"),
                    HasSubstr("rank 1 waits for rank 3, whose program has ended")));
}

TEST(RankGroups, RefusesImpossibleValues) {
  comm::RankGroups groups{4};
  groups.add(5, "pair", {1, 3});
  groups.add(5, "pair", {1, 3});
  EXPECT_EQ(groups.place(5, 3), 1U);
  EXPECT_EQ(groups.channel_name({comm::CallKind::reduce_batch, 5}), "pair");
  EXPECT_EQ(groups.members(comm::kAllRanks), (std::vector<int>{0, 1, 2, 3}));
  EXPECT_THROW((void)groups.place(5, 2), CommError);
  EXPECT_THROW((void)groups.members(6), CommError);
  EXPECT_THROW(groups.add(5, "other", {1, 3}), CommError);
  EXPECT_THROW(groups.add(5, "pair", {1, 2}), CommError);
  EXPECT_THROW(groups.add(comm::kAllRanks, "all", {0}), CommError);
  const std::vector<std::vector<int>> bad{{}, {3, 1}, {1, 1}, {-1, 0}, {2, 4}};
  for (const std::vector<int>& members : bad) {
    EXPECT_THROW(groups.add(9, "bad", members), CommError);
  }
}

}  // namespace
}  // namespace tessera::test::tcp_groups_test
