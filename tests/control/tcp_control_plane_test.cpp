// Ranks of jobs without MPI talk to each other, and fail together when one is lost.
#include "comm/control/tcp/tcp_control_plane.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>

#include "comm/control/tcp/listening.hpp"
#include "control/meeting.hpp"
#include "tessera/base/error.hpp"

namespace tessera::test::tcp_control_plane_test {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;

TEST(TcpControlPlane, RanksExchangeTextsOfAnySizeInRankOrder) {
  for (const int size : {1, 2, 3, 5, 8}) {
    SCOPED_TRACE(size);
    Meeting meeting{size};
    meeting.run([size](comm::TcpControlPlane& control) {
      for (std::size_t bytes : {0U, 1U, 1000U, 700'000U}) {
        const auto text = [&](int rank) {
          return std::string(bytes + static_cast<std::size_t>(rank), static_cast<char>('a' + rank));
        };
        const auto all = control.exchange(comm::CallKind::gather_text, text(control.rank()));
        ASSERT_EQ(std::ssize(all), size);
        for (int rank = 0; rank < size; ++rank) {
          EXPECT_TRUE(all[static_cast<std::size_t>(rank)] == text(rank));
        }
      }
      end_run(control);
    });
    for (int rank = 0; rank < size; ++rank) { EXPECT_EQ(meeting.error(rank), ""); }
  }
}

TEST(TcpControlPlane, CallsOfDifferentKindsDoNotMatch) {
  Meeting meeting{2};
  meeting.run([](comm::TcpControlPlane& control) {
    const auto talk = [&](comm::CallKind call, char kind) {
      for (int i = 0; i < 200; ++i) {
        const std::string text = fmt::format("{}{}", kind, i);
        EXPECT_THAT(control.exchange(call, text), ElementsAre(text, text));
      }
    };
    std::thread reduce{[&] { talk(comm::CallKind::reduce_text, 'r'); }};
    talk(comm::CallKind::gather_text, 'g');
    reduce.join();
    end_run(control);
  });
  EXPECT_EQ(meeting.error(0) + meeting.error(1), "");
}

TEST(TcpControlPlane, RunsOfTheSameProcessesFollowEachOther) {
  Meeting meeting{3};
  for (int run = 0; run < 20; ++run) {
    meeting.run([run](comm::TcpControlPlane& control) {
      EXPECT_EQ(control.exchange(comm::CallKind::setup, std::to_string(run))[2],
                std::to_string(run));
      end_run(control);
    });
    for (int rank = 0; rank < 3; ++rank) { ASSERT_EQ(meeting.error(rank), "") << run; }
  }
}

TEST(TcpControlPlane, ReadsMessagesThatArriveWithTheWelcome) {
  const comm::JobPlace place = place_of(1, 2, free_port());
  const comm::Socket listener = comm::listen_at(place.meet);
  comm::Socket coordinator;
  std::thread welcomes{[&] {
    while (!(coordinator = comm::accept_from(listener))) { std::this_thread::sleep_for(1ms); }
    std::string said;
    comm::Frame frame;
    frame.type = comm::FrameType::welcome;
    comm::append(said, frame);
    frame.type = comm::FrameType::failure;
    frame.payload = "rank 0: out of coffee";
    comm::append(said, frame);
    (void)coordinator.send_some(said.data(), said.size());
  }};
  const comm::TcpControlPlane control{place, 5s, 5s};
  welcomes.join();
  const auto end = Clock::now() + 5s;
  while (!control.failed() && Clock::now() < end) { std::this_thread::sleep_for(1ms); }
  EXPECT_TRUE(control.failed());
}

TEST(TcpControlPlane, AFailureReachesAllRanksWithItsReason) {
  Meeting meeting{3};
  meeting.run([](comm::TcpControlPlane& control) {
    if (control.rank() == 1) {
      control.abort("rank 1: out of coffee", 1);
      throw ConfigError{"out of coffee"};
    }
    end_run(control);
  });
  for (const int rank : {0, 2}) {
    EXPECT_EQ(meeting.error(rank), "rank 1: out of coffee");
    EXPECT_TRUE(meeting.is_echo(rank));
  }
}

// The lowest rank that fails before it hears of another failure reports; chance decides which.
TEST(TcpControlPlane, OneOfSimultaneousFailuresIsReported) {
  Meeting meeting{4};
  std::array<std::atomic<bool>, 4> others_report{};
  meeting.run([&](comm::TcpControlPlane& control) {
    (void)control.exchange(comm::CallKind::setup, {});
    if (control.rank() > 0) {
      const std::string reason = "rank " + std::to_string(control.rank()) + ": all see it";
      control.abort(reason, 2);
      control.give_way();
    } else {
      EXPECT_THROW(end_run(control), CommError);
      std::this_thread::sleep_for(500ms);
    }
    others_report[static_cast<std::size_t>(control.rank())] = control.another_reports();
  });
  EXPECT_TRUE(others_report[0]);
  EXPECT_EQ(std::count(others_report.begin() + 1, others_report.end(), false), 1);
}

TEST(TcpControlPlane, AMissingCallEndsByTheDeadlineAndNamesWhoIsMissing) {
  Meeting meeting{4, 300ms, 20s};
  meeting.run([](comm::TcpControlPlane& control) {
    (void)control.exchange(comm::CallKind::setup, {});
    if (control.rank() == 1 || control.rank() == 3) {
      std::this_thread::sleep_for(1200ms);
      return;
    }
    (void)control.exchange(comm::CallKind::reduce_text, {});
  });
  EXPECT_THAT(meeting.error(0) + meeting.error(2),
              AllOf(HasSubstr("exchange (channel reduce, sequence 0): rank "),
                    HasSubstr("waited 300 ms for ranks 1, 3, which did not call it")));
}

TEST(TcpControlPlane, ARankThatEndsItsRunWithoutACallIsNamedAtOnce) {
  Meeting meeting{3, 60s};
  const auto begin = Clock::now();
  meeting.run([](comm::TcpControlPlane& control) {
    if (control.rank() == 2) { return end_run(control); }
    (void)control.exchange(comm::CallKind::gather_text, {});
  });
  EXPECT_LT(Clock::now() - begin, 5s);
  EXPECT_THAT(meeting.error(0), HasSubstr("waits for rank 2, whose program has ended"));
  EXPECT_NE(meeting.error(2), "");
}

}  // namespace
}  // namespace tessera::test::tcp_control_plane_test
