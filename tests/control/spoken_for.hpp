#pragma once

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "comm/control/tcp/frame.hpp"
#include "comm/control/tcp/listening.hpp"
#include "comm/control/tcp/socket.hpp"
#include "control/meeting.hpp"

namespace tessera::test {

/// One end of the control path, played by a test.
class SpokenFor {
 public:
  void say(std::string_view words) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds{10};
    while (!words.empty() && std::chrono::steady_clock::now() < end) {
      const auto sent = line_.send_some(words.data(), words.size());
      if (!sent) { return; }
      words.remove_prefix(*sent);
    }
  }
  void say(const comm::Frame& frame) {
    std::string words;
    comm::append(words, frame);
    say(words);
  }
  /// The payload of the next frame of this type from the other end.
  std::string heard(comm::FrameType type) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds{10};
    std::array<char, 4096> buffer{};
    comm::Frame frame;
    while (std::chrono::steady_clock::now() < end) {
      while (in_.next(frame)) {
        if (frame.type == type) { return frame.payload; }
      }
      const auto count = line_.receive_some(buffer.data(), buffer.size());
      if (!count || !in_.add({buffer.data(), *count})) { return "the end of the connection"; }
      if (*count == 0) { std::this_thread::sleep_for(std::chrono::milliseconds{1}); }
    }
    return "nothing for ten seconds";
  }

 protected:
  comm::Socket line_;

 private:
  comm::FrameReader in_{std::size_t{1} << 30U};
};

/// Rank 0's coordinator; it welcomes the first connection.
class SpokenForCoordinator : public SpokenFor {
 public:
  SpokenForCoordinator() {
    thread_ = std::thread{[this] {
      const auto end = std::chrono::steady_clock::now() + std::chrono::seconds{10};
      while (!line_ && std::chrono::steady_clock::now() < end) {
        line_ = comm::accept_from(listener_);
        std::this_thread::sleep_for(std::chrono::milliseconds{1});
      }
      comm::Frame welcome;
      welcome.type = comm::FrameType::welcome;
      if (line_) { say(welcome); }
    }};
  }
  SpokenForCoordinator(const SpokenForCoordinator&) = delete;
  SpokenForCoordinator& operator=(const SpokenForCoordinator&) = delete;
  ~SpokenForCoordinator() { join(); }

  [[nodiscard]] int port() const noexcept { return port_; }
  void join() {
    if (thread_.joinable()) { thread_.join(); }
  }

 private:
  int port_ = free_port();
  comm::Socket listener_ = comm::listen_at({"127.0.0.1", port_});
  std::thread thread_;
};

/// A rank of a job at `port`; the constructor waits until all ranks have joined.
class SpokenForRank : public SpokenFor {
 public:
  SpokenForRank(int rank, int size, int port) {
    const comm::JobPlace place = place_of(rank, size, port);
    line_ = comm::Socket{connect_as_stranger(port)};
    comm::Frame hello;
    hello.type = comm::FrameType::hello;
    hello.rank = rank;
    hello.payload = comm::PayloadWriter{}
                        .number(size)
                        .text(place.job.build)
                        .text(place.job.token)
                        .text(place.job.secret)
                        .text("a process of the test's")
                        .take();
    say(hello);
    EXPECT_EQ(heard(comm::FrameType::welcome), "");
  }
};

}  // namespace tessera::test
