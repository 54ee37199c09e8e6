// The control path of jobs without MPI: meeting, talking, and failing together.
#include "comm/control/tcp/tcp_control_plane.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>

#include "comm/batch_code.hpp"
#include "comm/control/tcp/listening.hpp"
#include "control/meeting.hpp"
#include "tessera/base/error.hpp"

namespace tessera::test::tcp_control_plane_test {
namespace {

namespace testing = ::testing;

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;

void end_run(TcpControlPlane& control) {
  (void)control.exchange(CallKind::end, {});
}

TEST(TcpControlPlane, RanksExchangeTextsOfAnySizeInRankOrder) {
  for (const int size : {1, 2, 3, 5, 8}) {
    SCOPED_TRACE(size);
    Meeting meeting{size};
    meeting.run([size](TcpControlPlane& control) {
      for (std::size_t bytes : {0U, 1U, 1000U, 700'000U}) {
        const auto text = [&](int rank) {
          return std::string(bytes + static_cast<std::size_t>(rank), static_cast<char>('a' + rank));
        };
        const auto all = control.exchange(CallKind::gather_text, text(control.rank()));
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

TEST(TcpControlPlane, CallsOfAKindDoNotMeetThoseOfAnother) {
  Meeting meeting{2};
  meeting.run([](TcpControlPlane& control) {
    const auto talk = [&](CallKind call, char kind) {
      for (int i = 0; i < 200; ++i) {
        const std::string text = fmt::format("{}{}", kind, i);
        EXPECT_THAT(control.exchange(call, text), testing::ElementsAre(text, text));
      }
    };
    std::thread reduce{[&] { talk(CallKind::reduce_text, 'r'); }};
    talk(CallKind::gather_text, 'g');
    reduce.join();
    end_run(control);
  });
  EXPECT_EQ(meeting.error(0) + meeting.error(1), "");
}

TEST(TcpControlPlane, RunsOfTheSameProcessesFollowEachOther) {
  Meeting meeting{3};
  for (int run = 0; run < 20; ++run) {
    meeting.run([run](TcpControlPlane& control) {
      EXPECT_EQ(control.exchange(CallKind::setup, std::to_string(run))[2], std::to_string(run));
      end_run(control);
    });
    for (int rank = 0; rank < 3; ++rank) { ASSERT_EQ(meeting.error(rank), "") << run; }
  }
}

TEST(TcpControlPlane, AProcessThatStartsLateIsWaitedFor) {
  Meeting meeting{2};
  meeting.start(1, end_run);
  std::this_thread::sleep_for(700ms);
  meeting.start(0, end_run);
  meeting.join();
  EXPECT_EQ(meeting.error(0) + meeting.error(1), "");
}

TEST(TcpControlPlane, ARankThatDoesNotComeByTheDeadlineIsNamedEverywhere) {
  Meeting meeting{4, 400ms};
  for (const int rank : {0, 2}) {
    meeting.start(rank, [](TcpControlPlane&) { FAIL() << "all are said to be here"; });
  }
  const auto begin = Clock::now();
  meeting.join();
  EXPECT_LT(Clock::now() - begin, 3s);
  for (const int rank : {0, 2}) {
    EXPECT_THAT(meeting.error(rank), HasSubstr("ranks 1, 3 of 4 did not come to the rendezvous"));
  }
}

TEST(TcpControlPlane, AWrongAddressIsSaid) {
  Meeting meeting{3, 300ms};
  JobPlace nobody = place_of(1, 3, meeting.port());
  JobPlace nowhere = place_of(2, 3, meeting.port());
  nowhere.meet.host = "no.such.host.invalid";
  meeting.start(nobody, [](TcpControlPlane&) {});
  meeting.start(nowhere, [](TcpControlPlane&) {});
  meeting.join();
  EXPECT_THAT(meeting.error(1), AllOf(HasSubstr("rank 1 did not find rank 0 at 127.0.0.1:"),
                                      HasSubstr("Connection refused"), HasSubstr("MASTER_ADDR")));
  EXPECT_THAT(meeting.error(2), HasSubstr("the host no.such.host.invalid is not known"));
}

TEST(TcpControlPlane, ATakenPortIsSaid) {
  Meeting meeting{2};
  const Socket other = listen_at({"127.0.0.1", meeting.port()});
  meeting.start(0, [](TcpControlPlane&) {});
  meeting.join();
  EXPECT_THAT(meeting.error(0), AllOf(HasSubstr("cannot listen on port"),
                                      HasSubstr("another program does; set MASTER_PORT")));
}

TEST(TcpControlPlane, APortOfAnotherProgramIsNotTakenForRankZero) {
  Meeting meeting{2, 500ms};
  const Socket other = listen_at({"127.0.0.1", meeting.port()});
  std::atomic<bool> stop = false;
  std::thread answers{[&] {
    while (!stop) {
      if (Socket line = accept_from(other)) { (void)line.send_some("HTTP/1.1 400\r\n", 14); }
      std::this_thread::sleep_for(1ms);
    }
  }};
  meeting.start(1, [](TcpControlPlane&) {});
  meeting.join();
  stop = true;
  answers.join();
  EXPECT_THAT(meeting.error(1), AnyOf(HasSubstr("what listens there is not rank 0 of a job"),
                                      HasSubstr("has closed the connection")));
}

TEST(TcpControlPlane, WhatAllMustShareIsComparedBeforeTheStart) {
  struct Case {
    const char* text;
    std::function<void(JobPlace&)> change;
  };
  const std::vector<Case> cases{
      {"was started as one of 4 processes, but rank 0 as one of 3",
       [](JobPlace& place) { place.job.size = 4; }},
      {"is of another build (another) than rank 0 (a build)",
       [](JobPlace& place) { place.job.build = "another"; }},
      {"two processes say that they are rank 2: process ", [](JobPlace& place) { place.rank = 2; }},
  };
  for (const Case& tested : cases) {
    SCOPED_TRACE(tested.text);
    Meeting meeting{3, 5s};
    JobPlace odd = place_of(1, 3, meeting.port());
    tested.change(odd);
    const auto begin = Clock::now();
    meeting.start(0, [](TcpControlPlane&) {});
    meeting.start(2, [](TcpControlPlane&) {});
    std::this_thread::sleep_for(200ms);
    std::string said;
    try {
      const TcpControlPlane control{odd, 5s, 5s};
    } catch (const ConfigError& error) { said = error.what(); }
    meeting.join();
    EXPECT_LT(Clock::now() - begin, 3s);
    EXPECT_THAT(said, HasSubstr(tested.text));
    EXPECT_THAT(meeting.error(0), HasSubstr(tested.text));
    EXPECT_THAT(meeting.error(2), HasSubstr(tested.text));
  }
}

TEST(TcpControlPlane, ARankOfAnotherLaunchIsTurnedAwayAndTheJobGoesOn) {
  Meeting meeting{2, 2s};
  meeting.start(0, end_run);
  JobPlace other = place_of(1, 2, meeting.port());
  other.job.token = "an earlier launch";
  try {
    const TcpControlPlane control{other, 500ms, 500ms};
    ADD_FAILURE() << "a rank of another job was let in";
  } catch (const CommError& error) {
    EXPECT_THAT(error.what(), HasSubstr("rank 0 that listens there is of another job"));
  }
  meeting.start(1, end_run);
  meeting.join();
  EXPECT_EQ(meeting.error(0) + meeting.error(1), "");
}

// Whoever knows all else of a job gets neither a place in it nor the others into trouble.
TEST(TcpControlPlane, WhoDoesNotKnowTheSecretIsTurnedAwayAndTheJobGoesOn) {
  Meeting meeting{2, 2s};
  meeting.start(0, end_run);
  for (const std::string secret : {"", "a secreT", "a secret and more"}) {
    JobPlace other = place_of(1, 2, meeting.port());
    other.job.secret = secret;
    other.job.size = 7;  // which would end the job
    try {
      const TcpControlPlane control{other, 300ms, 300ms};
      ADD_FAILURE() << "a stranger was let in";
    } catch (const CommError& error) {
      EXPECT_THAT(error.what(), HasSubstr("or was given another secret (TESSERA_JOB_SECRET)"));
    }
  }
  meeting.start(1, end_run);
  meeting.join();
  EXPECT_EQ(meeting.error(0) + meeting.error(1), "");
}

/// What strangers send, as they connect before the ranks do.
std::vector<std::string> strange_words() {
  std::string huge = "TSR2";
  huge += std::string(16, '\0') + "\xff\xff\xff\x7f" + std::string(100, 'x');
  std::string cut;
  Frame hello;
  hello.payload = PayloadWriter{}.number(2).take();
  append(cut, hello);
  std::string negative;
  hello.payload = PayloadWriter{}.number(2).number(-5).take();
  append(negative, hello);
  std::string early;
  Frame text;
  text.type = FrameType::text;
  append(early, text);
  return {"",   "GET / HTTP/1.1\r\n\r\n", std::string(100'000, '\0'), huge, cut, negative, early,
          "TSR"};
}

TEST(TcpControlPlane, StrangersAtThePortAreTurnedAway) {
  Meeting meeting{2};
  meeting.start(0, end_run);
  std::vector<int> strangers;
  for (int round = 0; round < 20; ++round) {
    for (const std::string& words : strange_words()) {
      const int socket = connect_as_stranger(meeting.port());
      ASSERT_GE(socket, 0);
      (void)::send(socket, words.data(), words.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      strangers.push_back(socket);
    }
  }
  meeting.start(1, end_run);
  meeting.join();
  EXPECT_EQ(meeting.error(0) + meeting.error(1), "");
  for (const int socket : strangers) { ::close(socket); }
}

/// Connections that somebody makes as fast as it goes and never gives up, silent or begun with a
/// letter; for each that is closed at the other end there is a new one.
class Flood {
 public:
  explicit Flood(int port) : thread_{[this, port] { run(port); }} {}
  Flood(const Flood&) = delete;
  Flood& operator=(const Flood&) = delete;
  ~Flood() {
    stop_ = true;
    thread_.join();
    for (const int socket : open_) { ::close(socket); }
  }
  void wait_for(int connections) const {
    while (made_ < connections) { std::this_thread::sleep_for(1ms); }
  }

 private:
  static constexpr std::size_t kMost = 300;

  void run(int port) {
    while (!stop_) {
      std::erase_if(open_, [](int socket) {
        char byte = 0;
        const bool lasts = ::recv(socket, &byte, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN;
        if (!lasts) { ::close(socket); }
        return !lasts;
      });
      while (!stop_ && open_.size() < kMost) {
        const int socket = connect_as_stranger(port, 1);
        if (socket < 0) { break; }
        if (made_ % 2 == 0) { (void)::send(socket, "T", 1, MSG_NOSIGNAL | MSG_DONTWAIT); }
        open_.push_back(socket);
        ++made_;
      }
    }
  }

  std::atomic<bool> stop_ = false;
  std::atomic<int> made_ = 0;
  std::vector<int> open_;
  std::thread thread_;
};

TEST(TcpControlPlane, AFloodOfStrangersKeepsNoRankOut) {
  Meeting meeting{3};
  meeting.start(0, end_run);
  Flood flood{meeting.port()};
  flood.wait_for(600);  // more than are let wait at once
  const auto begin = Clock::now();
  meeting.start(1, end_run);
  std::this_thread::sleep_for(50ms);
  meeting.start(2, end_run);
  meeting.join();
  EXPECT_LT(Clock::now() - begin, 4s) << "before the first strangers have been here for too long";
  for (int rank = 0; rank < 3; ++rank) { EXPECT_EQ(meeting.error(rank), ""); }
}

TEST(TcpControlPlane, HearsWhatComesTogetherWithTheWelcome) {
  const JobPlace place = place_of(1, 2, free_port());
  const Socket listener = listen_at(place.meet);
  Socket coordinator;
  std::thread welcomes{[&] {
    while (!(coordinator = accept_from(listener))) { std::this_thread::sleep_for(1ms); }
    std::string said;
    Frame frame;
    frame.type = FrameType::welcome;
    append(said, frame);
    frame.type = FrameType::failure;
    frame.payload = "rank 0: out of coffee";
    append(said, frame);
    (void)coordinator.send_some(said.data(), said.size());
  }};
  const TcpControlPlane control{place, 5s, 5s};
  welcomes.join();
  const auto end = Clock::now() + 5s;
  while (!control.failed() && Clock::now() < end) { std::this_thread::sleep_for(1ms); }
  EXPECT_TRUE(control.failed());
}

TEST(TcpControlPlane, AFailureIsToldWithItsReasonToAll) {
  Meeting meeting{3};
  meeting.run([](TcpControlPlane& control) {
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

// The lowest of those that fail before they hear of another: which they are is chance.
TEST(TcpControlPlane, OfFailuresAtTheSameTimeOneIsReported) {
  Meeting meeting{4};
  std::array<std::atomic<bool>, 4> others_report{};
  meeting.run([&](TcpControlPlane& control) {
    (void)control.exchange(CallKind::setup, {});
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
  meeting.run([](TcpControlPlane& control) {
    (void)control.exchange(CallKind::setup, {});
    if (control.rank() == 1 || control.rank() == 3) {
      std::this_thread::sleep_for(1200ms);
      return;
    }
    (void)control.exchange(CallKind::reduce_text, {});
  });
  EXPECT_THAT(meeting.error(0) + meeting.error(2),
              AllOf(HasSubstr("exchange (channel reduce, sequence 0): rank "),
                    HasSubstr("waited 300 ms for ranks 1, 3, which did not call it")));
}

TEST(TcpControlPlane, ARankThatEndsItsRunWithoutACallIsNamedAtOnce) {
  Meeting meeting{3, 60s};
  const auto begin = Clock::now();
  meeting.run([](TcpControlPlane& control) {
    if (control.rank() == 2) { return end_run(control); }
    (void)control.exchange(CallKind::gather_text, {});
  });
  EXPECT_LT(Clock::now() - begin, 5s);
  EXPECT_THAT(meeting.error(0), HasSubstr("waits for rank 2, which has ended its program"));
  EXPECT_NE(meeting.error(2), "");
}

std::string code_of(const Batch& batch) {
  std::string code;
  encode(batch, code);
  return code;
}

Batch step(int number, int elems) {
  return Batch{"step " + std::to_string(number)}.all_reduce({nullptr, elems, DType::fp32});
}

TEST(TcpControlPlane, DifferentBatchesAreNamedWithinMomentsAndRankZeroReports) {
  Meeting meeting{3, 60s};
  const auto begin = Clock::now();
  meeting.run([](TcpControlPlane& control) {
    for (int i = 0; i < 3000; ++i) {
      const bool odd = control.rank() == 2 && i == 2500;
      (void)control.note_batch(CallKind::reduce_batch, code_of(step(i, odd ? 3 : 4)));
    }
    end_run(control);
  });
  EXPECT_LT(Clock::now() - begin, 5s);
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(
        meeting.error(rank),
        "ranks disagree on collective 2500 of channel reduce: entry 0 of batch \"step 2500\": "
        "rank 2 issued all_reduce of 3 fp32 (sum) where rank 0 issued all_reduce of 4 fp32 "
        "(sum)");
    EXPECT_EQ(meeting.is_echo(rank), rank != 0);
  }
}

TEST(TcpControlPlane, ADifferenceThatIsNoLongerKnownIsStillAnError) {
  Meeting meeting{2, 60s};
  meeting.run([](TcpControlPlane& control) {
    for (int i = 0; i < 5000; ++i) {
      (void)control.note_batch(CallKind::gather_batch, code_of(step(i, control.rank() + 1)));
    }
    end_run(control);
  });
  EXPECT_THAT(meeting.error(0), HasSubstr("ranks disagree on collective 0 of channel gather"));
  EXPECT_THAT(meeting.error(1), HasSubstr("ranks disagree on collective 0 of channel gather"));
}

TEST(TcpControlPlane, ABatchThatDoesNotEndIsExplained) {
  Meeting meeting{3};
  meeting.run([](TcpControlPlane& control) {
    if (control.rank() != 1) {
      EXPECT_EQ(control.note_batch(CallKind::gather_batch, code_of(step(0, 1))), 0U);
    }
    (void)control.exchange(CallKind::setup, {});
    EXPECT_THAT(control.late_text(CallKind::gather_batch, 0, "the call", 70ms),
                AllOf(HasSubstr("the call: rank "), HasSubstr("waited 70 ms for rank 1, which did "
                                                              "not call it")));
    (void)control.exchange(CallKind::setup, {});
    if (control.rank() == 1) {
      (void)control.note_batch(CallKind::gather_batch, code_of(step(0, 1)));
    }
    (void)control.exchange(CallKind::setup, {});
    if (control.rank() == 0) {
      EXPECT_THAT(
          control.late_text(CallKind::gather_batch, 0, "the call", 70ms),
          HasSubstr("the call: rank 0 waited 70 ms for ranks 1, 2, which called it and then "
                    "moved no data"));
    }
    (void)control.exchange(CallKind::setup, {});  // till then nobody ends its run
    EXPECT_FALSE(control.ended_without(CallKind::gather_batch, 0));
    if (control.rank() == 2) {
      EXPECT_THROW(end_run(control), CommError);
      return;
    }
    while (!control.ended_without(CallKind::gather_batch, 1)) { std::this_thread::sleep_for(1ms); }
    EXPECT_EQ(control.ended_without(CallKind::gather_batch, 1), 2);
    (void)control.exchange(CallKind::reduce_text, {});  // nor does it come to this
  });
}

// ---- groups

constexpr std::uint64_t kGroups = 7;  // more by the group's first rank

/// Ranks 0, 2, ... are a group, and 1, 3, ...; its number.
std::uint64_t join_every_second(TcpControlPlane& control) {
  std::vector<int> members;
  for (int rank = control.rank() % 2; rank < control.size(); rank += 2) { members.push_back(rank); }
  const std::uint64_t number = kGroups + static_cast<std::uint64_t>(members.front());
  control.add_group(number, "every second", members);
  return number;
}

TEST(TcpControlPlane, TextsOfAGroupComeInTheOrderOfItsRanks) {
  for (const int size : {1, 2, 3, 5}) {
    SCOPED_TRACE(size);
    Meeting meeting{size};
    meeting.run([size](TcpControlPlane& control) {
      const std::uint64_t every_second = join_every_second(control);
      std::vector<std::string> expected;
      for (int rank = control.rank() % 2; rank < size; rank += 2) {
        expected.push_back(std::to_string(rank));
      }
      for (int i = 0; i <= control.rank() % 2; ++i) {  // the odd ones more often than the others
        EXPECT_EQ(
            control.exchange({CallKind::gather_text, every_second}, std::to_string(control.rank())),
            expected);
      }
      EXPECT_EQ(std::ssize(control.exchange(CallKind::gather_text, {})), size);
      end_run(control);
    });
    for (int rank = 0; rank < size; ++rank) { EXPECT_EQ(meeting.error(rank), ""); }
  }
}

TEST(TcpControlPlane, DifferentBatchesOfAGroupEndTheJobAndItsLowestRankReports) {
  Meeting meeting{5, 60s};
  meeting.run([](TcpControlPlane& control) {
    const CallSeries channel{CallKind::reduce_batch, join_every_second(control)};
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

TEST(TcpControlPlane, WhoIsMissingInAGroupIsCalledAsInTheJob) {
  Meeting meeting{4};
  meeting.run([](TcpControlPlane& control) {
    const CallSeries channel{CallKind::gather_batch, join_every_second(control)};
    if (control.rank() != 3) { (void)control.note_batch(channel, code_of(step(0, 1))); }
    (void)control.exchange(CallKind::setup, {});
    if (control.rank() == 1) {
      EXPECT_THAT(control.late_text(channel, 0, "the call", 70ms),
                  HasSubstr("rank 1 waited 70 ms for rank 3, which did not call it"));
    } else if (control.rank() == 0) {
      EXPECT_THAT(control.late_text(channel, 0, "the call", 70ms),
                  HasSubstr("for rank 2, which called it and then moved no data"));
      EXPECT_THAT(control.late_text(channel, 1, "the call", 70ms),
                  HasSubstr("for ranks 0, 2, which"));
    }
    (void)control.exchange(CallKind::setup, {});
    end_run(control);
  });
  for (int rank = 0; rank < 4; ++rank) { EXPECT_EQ(meeting.error(rank), ""); }
}

// Pairs of ranks, and every second one, as models in pairs have them: rank 1 does not come to its
// pair's batch, and so rank 2's does not begin on rank 0, which has called it.
TEST(TcpControlPlane, WhoHoldsUpAMemberInAnotherGroupIsNamed) {
  Meeting meeting{4};
  meeting.run([](TcpControlPlane& control) {
    const int rank = control.rank();
    const CallSeries across{CallKind::reduce_batch, join_every_second(control)};
    const int first = rank / 2 * 2;
    const CallSeries pair{CallKind::reduce_batch, 20 + static_cast<std::uint64_t>(first)};
    control.add_group(pair.group, "pair", {first, first + 1});
    for (int i = 0; i < 2; ++i) {
      if (rank != 1 || i == 0) { (void)control.note_batch(pair, code_of(step(i, 1))); }
      if (rank % 2 == 0 || i == 0) { (void)control.note_batch(across, code_of(step(i, 1))); }
    }
    (void)control.exchange(CallKind::setup, {});
    if (rank == 0) {
      EXPECT_THAT(control.late_text(pair, 1, "the call", 70ms),
                  HasSubstr("rank 0 waited 70 ms for rank 1, which did not call it"));
    } else if (rank == 2) {
      for (int i = 0; i < 2; ++i) {
        EXPECT_EQ(control.late_text(across, 1, "the call", 70ms),
                  "the call: rank 2 waited 70 ms, held up by rank 1, which did not call the batch "
                  "(channel pair, sequence 1); every rank makes the same collective calls in the "
                  "same order");
      }
    }
    (void)control.exchange(CallKind::setup, {});
    end_run(control);
  });
  for (int rank = 0; rank < 4; ++rank) { EXPECT_EQ(meeting.error(rank), ""); }
}

TEST(TcpControlPlane, ARankThatIsAloneInItsGroupWaitsForNobody) {
  for (const int size : {1, 2}) {
    Meeting meeting{size};
    meeting.run([](TcpControlPlane& control) {
      const auto number = kGroups + static_cast<std::uint64_t>(control.rank());
      control.add_group(number, "alone", {control.rank()});
      const CallSeries channel{CallKind::gather_batch, number};
      EXPECT_EQ(control.note_batch(channel, code_of(step(0, 1))), 0U);
      EXPECT_EQ(control.late_text(channel, 0, "the call", 70ms), "");
      end_run(control);
    });
    for (int rank = 0; rank < size; ++rank) { EXPECT_EQ(meeting.error(rank), ""); }
  }
}

TEST(TcpControlPlane, ARankThatHasEndedIsMissedByItsGroupsAlone) {
  Meeting meeting{4, 60s};
  const auto begin = Clock::now();
  meeting.run([](TcpControlPlane& control) {
    const std::uint64_t every_second = join_every_second(control);
    const CallSeries channel{CallKind::gather_batch, every_second};
    (void)control.exchange(CallKind::setup, {});
    if (control.rank() == 3) { return end_run(control); }
    if (control.rank() == 1) {
      while (!control.ended_without(channel, 0)) { std::this_thread::sleep_for(1ms); }
      EXPECT_EQ(control.ended_without(channel, 0), 3);
    } else {
      EXPECT_FALSE(control.ended_without(channel, 0));
      EXPECT_EQ(control.exchange({CallKind::gather_text, every_second}, "x").size(), 2U);
    }
    (void)control.exchange({CallKind::reduce_text, every_second}, {});
    end_run(control);
  });
  EXPECT_LT(Clock::now() - begin, 5s);
  EXPECT_THAT(meeting.error(1), AllOf(HasSubstr("exchange (channel every second, sequence 0)"),
                                      HasSubstr("rank 1 waits for rank 3, which has ended")));
}

TEST(RankGroups, RefusesWhatCannotBe) {
  RankGroups groups{4};
  groups.add(5, "pair", {1, 3});
  groups.add(5, "pair", {1, 3});
  EXPECT_EQ(groups.place(5, 3), 1U);
  EXPECT_EQ(groups.channel_name({CallKind::reduce_batch, 5}), "pair");
  EXPECT_EQ(groups.members(kAllRanks), (std::vector<int>{0, 1, 2, 3}));
  EXPECT_THROW((void)groups.place(5, 2), CommError);
  EXPECT_THROW((void)groups.members(6), CommError);
  EXPECT_THROW(groups.add(5, "other", {1, 3}), CommError);
  EXPECT_THROW(groups.add(5, "pair", {1, 2}), CommError);
  EXPECT_THROW(groups.add(kAllRanks, "all", {0}), CommError);
  const std::vector<std::vector<int>> bad{{}, {3, 1}, {1, 1}, {-1, 0}, {2, 4}};
  for (const std::vector<int>& members : bad) {
    EXPECT_THROW(groups.add(9, "bad", members), CommError);
  }
}

}  // namespace
}  // namespace tessera::test::tcp_control_plane_test
