// Batches of collectives that differ between ranks, or that a rank does not reach.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "comm/control/tcp/tcp_control_plane.hpp"
#include "control/meeting.hpp"
#include "tessera/base/error.hpp"

namespace tessera::test::tcp_batches_test {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;

TEST(TcpBatches, DifferentBatchesAreNamedWithinMomentsAndRankZeroReports) {
  Meeting meeting{3, 60s};
  const auto begin = Clock::now();
  meeting.run([](comm::TcpControlPlane& control) {
    control.names().arrange([](int rank) { return "pipe " + std::to_string(rank); });
    (void)control.exchange(comm::CallKind::setup, {});
    for (int i = 0; i < 3000; ++i) {
      const bool odd = control.rank() == 2 && i == 2500;
      (void)control.note_batch(comm::CallKind::reduce_batch, code_of(step(i, odd ? 3 : 4)));
    }
    end_run(control);
  });
  EXPECT_LT(Clock::now() - begin, 5s);
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(
        meeting.error(rank),
        "ranks disagree on collective 2500 of channel reduce: entry 0 of batch \"step 2500\": "
        "rank 2 (pipe 2) issued all_reduce of 3 fp32 (sum) where rank 0 (pipe 0) issued "
        "all_reduce of 4 fp32 (sum)");
    EXPECT_EQ(meeting.is_echo(rank), rank != 0);
  }
}

TEST(TcpBatches, ADifferenceThatIsNoLongerKnownIsStillAnError) {
  Meeting meeting{2, 60s};
  meeting.run([](comm::TcpControlPlane& control) {
    for (int i = 0; i < 5000; ++i) {
      (void)control.note_batch(comm::CallKind::gather_batch, code_of(step(i, control.rank() + 1)));
    }
    end_run(control);
  });
  EXPECT_THAT(meeting.error(0), HasSubstr("ranks disagree on collective 0 of channel gather"));
  EXPECT_THAT(meeting.error(1), HasSubstr("ranks disagree on collective 0 of channel gather"));
}

TEST(TcpBatches, ABatchThatDoesNotEndIsExplained) {
  Meeting meeting{3};
  meeting.run([](comm::TcpControlPlane& control) {
    if (control.rank() != 1) {
      EXPECT_EQ(control.note_batch(comm::CallKind::gather_batch, code_of(step(0, 1))), 0U);
    }
    (void)control.exchange(comm::CallKind::setup, {});
    EXPECT_THAT(control.late_text(comm::CallKind::gather_batch, 0, "the call", 70ms),
                AllOf(HasSubstr("the call: rank "), HasSubstr("waited 70 ms for rank 1, which did "
                                                              "not call it")));
    (void)control.exchange(comm::CallKind::setup, {});
    if (control.rank() == 1) {
      (void)control.note_batch(comm::CallKind::gather_batch, code_of(step(0, 1)));
    }
    (void)control.exchange(comm::CallKind::setup, {});
    if (control.rank() == 0) {
      EXPECT_THAT(
          control.late_text(comm::CallKind::gather_batch, 0, "the call", 70ms),
          HasSubstr("the call: rank 0 waited 70 ms for ranks 1, 2, which called it and then "
                    "moved no data"));
    }
    (void)control.exchange(comm::CallKind::setup, {});  // until then no rank ends its run
    EXPECT_FALSE(control.ended_without(comm::CallKind::gather_batch, 0));
    if (control.rank() == 2) {
      EXPECT_THROW(end_run(control), CommError);
      return;
    }
    while (!control.ended_without(comm::CallKind::gather_batch, 1)) {
      std::this_thread::sleep_for(1ms);
    }
    EXPECT_EQ(control.ended_without(comm::CallKind::gather_batch, 1), 2);
    (void)control.exchange(comm::CallKind::reduce_text, {});  // not reached either
  });
}

}  // namespace
}  // namespace tessera::test::tcp_batches_test
