// A peer that breaks the protocol gets an error that says so, and is not reported as lost.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <latch>

#include "control/meeting.hpp"
#include "control/spoken_for.hpp"
#include "tessera/base/error.hpp"

namespace tessera::test::protocol_test {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

struct Wrong {
  const char* problem;
  std::string words;
};

std::string words_of(const std::vector<comm::Frame>& frames) {
  std::string words;
  for (const comm::Frame& frame : frames) { comm::append(words, frame); }
  return words;
}

std::vector<Wrong> wrong_words() {
  comm::Frame late;
  late.type = comm::FrameType::issued;
  late.call = comm::CallKind::gather_batch;
  late.sequence = 5;
  late.payload = std::string(8, 'h');
  comm::Frame text;
  text.type = comm::FrameType::text;
  text.call = comm::CallKind::gather_text;
  comm::Frame early = text;
  early.sequence = 1;
  comm::Frame end = text;
  end.call = comm::CallKind::end;
  end.payload = comm::PayloadWriter{}.number(77).number(0).number(1).take();
  comm::Frame no_batch = late;
  no_batch.sequence = 0;
  no_batch.payload.clear();
  comm::Frame group;
  group.type = comm::FrameType::group;
  group.call.group = 9;
  group.payload = comm::PayloadWriter{}.text("a group").number(7).take();
  comm::Frame cut;
  cut.type = comm::FrameType::held;
  cut.call = comm::CallKind::gather_batch;
  comm::Frame welcome;
  welcome.type = comm::FrameType::welcome;
  return {{"a rank's report of batches is out of order", words_of({late})},
          {"a rank made the same call twice", words_of({text, text})},
          {"a rank's calls are out of order", words_of({early})},
          {"a message between ranks has an invalid value", words_of({end})},
          {"a rank's report of batches is not a whole number of hashes", words_of({no_batch})},
          {"a rank announced a group with invalid members", words_of({group})},
          {"a message between ranks was cut short", words_of({cut})},
          {"a rank sent a message that only the coordinator may send", words_of({welcome})},
          {"it sent bytes that are not a message between ranks", "GET / HTTP/1.1\r\n\r\n"}};
}

TEST(ControlProtocol, NamesARankThatBreaksItAndQuotesItsMessage) {
  for (const auto& [problem, words] : wrong_words()) {
    SCOPED_TRACE(problem);
    Meeting meeting{3};
    std::latch named{2};
    for (const int rank : {0, 2}) {
      meeting.start(rank, [&named](comm::TcpControlPlane& control) {
        control.names().arrange([](int of) { return "pipe " + std::to_string(of); });
        named.count_down();
        (void)control.exchange(comm::CallKind::setup, {});
      });
    }
    SpokenForRank odd{1, 3, meeting.port()};
    named.wait();
    odd.say(words);
    meeting.join();
    const std::string text =
        "rank 1 (pipe 1) (a process of the test's) sent an invalid message to other ranks: " +
        std::string{problem};
    EXPECT_THAT(odd.heard(comm::FrameType::differ), HasSubstr(text));
    for (const int rank : {0, 2}) {
      EXPECT_THAT(meeting.error(rank), AllOf(HasSubstr(text), Not(HasSubstr("has left"))));
      EXPECT_EQ(meeting.is_echo(rank), rank != 0);
    }
  }
}

TEST(ControlProtocol, DistinguishesAFaultyCoordinatorFromALostOne) {
  comm::Frame cut;
  cut.type = comm::FrameType::answer;
  for (const std::string& words : {std::string{"HTTP/1.1 400\r\n\r\n"}, words_of({cut})}) {
    SpokenForCoordinator coordinator;
    comm::TcpControlPlane control{place_of(1, 2, coordinator.port()), 5s, 5s};
    coordinator.join();
    coordinator.say(words);
    std::string failure;
    try {
      (void)control.exchange(comm::CallKind::setup, {});
    } catch (const CommError& error) { failure = error.what(); }
    EXPECT_THAT(failure, AllOf(HasSubstr("rank 0 (at 127.0.0.1:"),
                               HasSubstr("sent an invalid message to other ranks: "),
                               Not(HasSubstr("has left"))));
    EXPECT_THAT(coordinator.heard(comm::FrameType::failure), HasSubstr("rank 0 (at 127.0.0.1:"));
  }
}

}  // namespace
}  // namespace tessera::test::protocol_test
