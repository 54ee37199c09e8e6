// Jobs without MPI meet at an address; errors name ranks that do not arrive or do not belong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <utility>

#include "comm/control/tcp/listening.hpp"
#include "comm/control/tcp/tcp_control_plane.hpp"
#include "control/meeting.hpp"
#include "control/spoken_for.hpp"
#include "tessera/base/error.hpp"

namespace tessera::test::tcp_rendezvous_test {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;

TEST(TcpRendezvous, WaitsForALateProcess) {
  Meeting meeting{2};
  meeting.start(1, end_run);
  std::this_thread::sleep_for(700ms);
  meeting.start(0, end_run);
  meeting.join();
  EXPECT_EQ(meeting.error(0) + meeting.error(1), "");
}

TEST(TcpRendezvous, ARankThatDoesNotComeByTheDeadlineIsNamedEverywhere) {
  Meeting meeting{4, 400ms};
  for (const int rank : {0, 2}) {
    meeting.start(rank, [](comm::TcpControlPlane&) { FAIL() << "all are said to be here"; });
  }
  const auto begin = Clock::now();
  meeting.join();
  EXPECT_LT(Clock::now() - begin, 3s);
  for (const int rank : {0, 2}) {
    EXPECT_THAT(meeting.error(rank), HasSubstr("ranks 1, 3 of 4 did not reach the rendezvous"));
  }
}

TEST(TcpRendezvous, ReportsAWrongAddress) {
  Meeting meeting{3, 300ms};
  comm::JobPlace nobody = place_of(1, 3, meeting.port());
  comm::JobPlace nowhere = place_of(2, 3, meeting.port());
  nowhere.meet.host = "no.such.host.invalid";
  meeting.start(nobody, [](comm::TcpControlPlane&) {});
  meeting.start(nowhere, [](comm::TcpControlPlane&) {});
  meeting.join();
  EXPECT_THAT(meeting.error(1), AllOf(HasSubstr("rank 1 did not find rank 0 at 127.0.0.1:"),
                                      HasSubstr("Connection refused"), HasSubstr("MASTER_ADDR")));
  EXPECT_THAT(meeting.error(2), HasSubstr("the host no.such.host.invalid is not known"));
}

// Rank 0 may have several networks, and listens before it knows the port.
TEST(TcpRendezvous, TriesEachAddressOfAListenerThatWasMadeBefore) {
  comm::Socket listener = comm::listen_at({"127.0.0.1", 0});
  Meeting meeting{2};
  comm::JobPlace place = place_of(1, 2, meeting.port());
  place.others = {{"127.0.0.1", free_port()}, {"127.0.0.1", comm::port_of(listener)}};
  meeting.start(place, end_run);
  comm::TcpControlPlane first{place_of(0, 2, meeting.port()), 20s, 20s, std::move(listener)};
  end_run(first);
  meeting.join();
  EXPECT_EQ(meeting.error(1), "");
}

// It accepts connections, as the system does for it, and never answers.
TEST(TcpRendezvous, AnAddressThatDoesNotAnswerKeepsNoRankFromTheOthers) {
  const comm::Socket mute = comm::listen_at({"127.0.0.1", 0});
  Meeting meeting{2, 12s};
  comm::JobPlace place = place_of(1, 2, comm::port_of(mute));
  place.others = {{"127.0.0.1", meeting.port()}};
  meeting.start(place, end_run);
  meeting.start(0, end_run);
  meeting.join();
  EXPECT_EQ(meeting.error(0) + meeting.error(1), "");
}

// Rank 0 answers at once, however late the last rank comes.
TEST(TcpRendezvous, ARankWithSeveralAddressesWaitsForALateOne) {
  Meeting meeting{3};
  comm::JobPlace place = place_of(1, 3, meeting.port());
  place.others = {{"127.0.0.1", free_port()}};
  meeting.start(0, end_run);
  meeting.start(place, end_run);
  std::this_thread::sleep_for(3500ms);
  meeting.start(2, end_run);
  meeting.join();
  EXPECT_EQ(meeting.error(0) + meeting.error(1) + meeting.error(2), "");
}

TEST(TcpRendezvous, ErrorsNameTheAddressWhereRankZeroAnswered) {
  Meeting meeting{2};
  std::string answered;
  {
    SpokenForCoordinator coordinator;
    answered = comm::HostPort{"127.0.0.1", coordinator.port()}.text();
    comm::JobPlace place = place_of(1, 2, free_port());
    place.others = {{"127.0.0.1", coordinator.port()}};
    meeting.start(place, end_run);
    coordinator.join();
    (void)coordinator.heard(comm::FrameType::text);
  }
  meeting.join();
  EXPECT_THAT(meeting.error(1), HasSubstr("rank 0 (at " + answered + ") has left"));
}

TEST(TcpRendezvous, ErrorsSayWhatToDoInThisKindOfJob) {
  Meeting meeting{3, 300ms};
  comm::JobPlace place = place_of(1, 3, meeting.port());
  place.job.remedy = "ask the administrator";
  place.others = {{"127.0.0.1", 1}};
  meeting.start(place, [](comm::TcpControlPlane&) {});
  meeting.join();
  EXPECT_THAT(meeting.error(1), AllOf(HasSubstr("within 300 ms (127.0.0.1: Connection refused; "
                                                "127.0.0.1: Connection refused); check"),
                                      HasSubstr(", 127.0.0.1:1 within"),
                                      HasSubstr("listens there: ask the administrator")));
  place.rank = 0;
  meeting.start(place, [](comm::TcpControlPlane&) {});
  meeting.join();
  EXPECT_THAT(meeting.error(0), AllOf(HasSubstr("ranks 1, 2 of 3 did not reach"),
                                      HasSubstr("ask the administrator")));
}

TEST(TcpRendezvous, ARefusalSaysWhereTheSecretOfThisKindOfJobComesFrom) {
  Meeting meeting{2, 1s};
  meeting.start(0, [](comm::TcpControlPlane&) {});
  comm::JobPlace place = place_of(1, 2, meeting.port());
  place.job.secret = "another";
  place.job.secret_from = "a sealed envelope";
  meeting.start(place, [](comm::TcpControlPlane&) {});
  meeting.join();
  EXPECT_THAT(meeting.error(1), HasSubstr("or has another secret (a sealed envelope)"));
}

TEST(TcpRendezvous, ReportsATakenPort) {
  Meeting meeting{2};
  const comm::Socket other = comm::listen_at({"127.0.0.1", meeting.port()});
  meeting.start(0, [](comm::TcpControlPlane&) {});
  meeting.join();
  EXPECT_THAT(meeting.error(0), AllOf(HasSubstr("cannot listen on port"),
                                      HasSubstr("another program uses it; set MASTER_PORT")));
}

TEST(TcpRendezvous, AnotherProgramsPortIsNotMistakenForRankZero) {
  Meeting meeting{2, 500ms};
  const comm::Socket other = comm::listen_at({"127.0.0.1", meeting.port()});
  std::atomic<bool> stop = false;
  std::thread answers{[&] {
    while (!stop) {
      if (comm::Socket line = comm::accept_from(other)) {
        (void)line.send_some("HTTP/1.1 400\r\n", 14);
      }
      std::this_thread::sleep_for(1ms);
    }
  }};
  meeting.start(1, [](comm::TcpControlPlane&) {});
  meeting.join();
  stop = true;
  answers.join();
  EXPECT_THAT(meeting.error(1),
              AnyOf(HasSubstr("the program that listens there is not rank 0 of a job"),
                    HasSubstr("has closed the connection")));
}

TEST(TcpRendezvous, SharedSettingsAreComparedBeforeTheStart) {
  struct Case {
    const char* text;
    std::function<void(comm::JobPlace&)> change;
  };
  const std::vector<Case> cases{
      {"was started as one of 4 processes, but rank 0 as one of 3",
       [](comm::JobPlace& place) { place.job.size = 4; }},
      {"runs another build (another) than rank 0 (a build)",
       [](comm::JobPlace& place) { place.job.build = "another"; }},
      {"two processes say that they are rank 2: process ",
       [](comm::JobPlace& place) { place.rank = 2; }},
  };
  for (const Case& tested : cases) {
    SCOPED_TRACE(tested.text);
    Meeting meeting{3, 5s};
    comm::JobPlace odd = place_of(1, 3, meeting.port());
    tested.change(odd);
    const auto begin = Clock::now();
    meeting.start(0, [](comm::TcpControlPlane&) {});
    meeting.start(2, [](comm::TcpControlPlane&) {});
    std::this_thread::sleep_for(200ms);
    std::string said;
    try {
      const comm::TcpControlPlane control{odd, 5s, 5s};
    } catch (const ConfigError& error) { said = error.what(); }
    meeting.join();
    EXPECT_LT(Clock::now() - begin, 3s);
    EXPECT_THAT(said, HasSubstr(tested.text));
    EXPECT_THAT(meeting.error(0), HasSubstr(tested.text));
    EXPECT_THAT(meeting.error(2), HasSubstr(tested.text));
  }
}

}  // namespace
}  // namespace tessera::test::tcp_rendezvous_test
