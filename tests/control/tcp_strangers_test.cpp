// Connections that do not belong to the job are rejected, and the job continues.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <atomic>
#include <cerrno>
#include <chrono>

#include "comm/control/tcp/coordinator.hpp"
#include "comm/control/tcp/frame.hpp"
#include "comm/control/tcp/listening.hpp"
#include "comm/control/tcp/tcp_control_plane.hpp"
#include "control/meeting.hpp"
#include "tessera/base/error.hpp"

namespace tessera::test::tcp_strangers_test {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;

TEST(TcpStrangers, ARankOfAnotherLaunchIsRejectedAndTheJobContinues) {
  Meeting meeting{2, 2s};
  meeting.start(0, end_run);
  comm::JobPlace other = place_of(1, 2, meeting.port());
  other.job.token = "an earlier launch";
  try {
    const comm::TcpControlPlane control{other, 500ms, 500ms};
    ADD_FAILURE() << "a rank of another job was let in";
  } catch (const CommError& error) {
    EXPECT_THAT(error.what(), HasSubstr("rank 0 at this address belongs to another job"));
  }
  meeting.start(1, end_run);
  meeting.join();
  EXPECT_EQ(meeting.error(0) + meeting.error(1), "");
}

// A client that knows everything but the secret gets no place in the job and does not disturb it.
TEST(TcpStrangers, AClientWithoutTheSecretIsRejectedAndTheJobContinues) {
  Meeting meeting{2, 2s};
  meeting.start(0, end_run);
  for (const std::string secret : {"", "a secreT", "a secret and more"}) {
    comm::JobPlace other = place_of(1, 2, meeting.port());
    other.job.secret = secret;
    other.job.size = 7;  // would end the job
    try {
      const comm::TcpControlPlane control{other, 300ms, 300ms};
      ADD_FAILURE() << "a stranger was let in";
    } catch (const CommError& error) {
      EXPECT_THAT(error.what(), HasSubstr("or has another secret (TESSERA_JOB_SECRET)"));
    }
  }
  meeting.start(1, end_run);
  meeting.join();
  EXPECT_EQ(meeting.error(0) + meeting.error(1), "");
}

/// What strangers send; they connect before the ranks do.
std::vector<std::string> strange_words() {
  std::string huge = "TSR2";
  huge += std::string(16, '\0') + "\xff\xff\xff\x7f" + std::string(100, 'x');
  std::string cut;
  comm::Frame hello;
  hello.payload = comm::PayloadWriter{}.number(2).take();
  comm::append(cut, hello);
  std::string negative;
  hello.payload = comm::PayloadWriter{}.number(2).number(-5).take();
  comm::append(negative, hello);
  std::string early;
  comm::Frame text;
  text.type = comm::FrameType::text;
  comm::append(early, text);
  return {"",   "GET / HTTP/1.1\r\n\r\n", std::string(100'000, '\0'), huge, cut, negative, early,
          "TSR"};
}

TEST(TcpStrangers, StrangersAtThePortAreRejected) {
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

/// Connections of a stranger that never gives up: made as fast as possible, silent or beginning
/// with a letter, each replaced as soon as the other end closes it.
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

TEST(TcpStrangers, AFloodOfStrangersKeepsNoRankOut) {
  Meeting meeting{3};
  meeting.start(0, end_run);
  Flood flood{meeting.port()};
  flood.wait_for(600);  // more than may wait at once
  const auto begin = Clock::now();
  meeting.start(1, end_run);
  std::this_thread::sleep_for(50ms);
  meeting.start(2, end_run);
  meeting.join();
  EXPECT_LT(Clock::now() - begin, 4s) << "before the first strangers have been here for too long";
  for (int rank = 0; rank < 3; ++rank) { EXPECT_EQ(meeting.error(rank), ""); }
}

// Rank 0 never identifies itself, so the coordinator soon gives up, and is idle.
TEST(TcpStrangers, AStrangerWhoSaysNothingIsRejectedByAnIdleCoordinatorToo) {
  const comm::JobPlace place = place_of(0, 2, free_port());
  auto [mine, theirs] = comm::socket_pair();
  const comm::RankNames names;
  const comm::Coordinator coordinator{place.job, names, comm::listen_at(place.meet),
                                      std::move(theirs), 500ms};
  const comm::Socket stranger{connect_as_stranger(place.meet.port)};
  pollfd watched{stranger.handle(), POLLIN, 0};
  EXPECT_EQ(::poll(&watched, 1, 10'000), 1) << "strangers have five seconds";
}

}  // namespace
}  // namespace tessera::test::tcp_strangers_test
