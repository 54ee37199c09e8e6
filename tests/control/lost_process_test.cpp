// A process of a job dies: the others notice at once, whichever it is.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <random>

#include "control/meeting.hpp"
#include "tessera/base/error.hpp"

namespace tessera::test::lost_process_test {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;

constexpr int kRanks = 3;

/// Processes that exchange texts until something goes wrong, and then report it.
class Processes {
 public:
  Processes() {
    const int port = free_port();
    for (int rank = 0; rank < kRanks; ++rank) { start(rank, port); }
  }
  ~Processes() {
    for (std::size_t rank = 0; rank < kRanks; ++rank) {
      if (ids_[rank] > 0) { ::kill(ids_[rank], SIGKILL); }
      (void)end_of(static_cast<int>(rank));
    }
  }
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;

  /// Waits until every rank has begun.
  void wait_for_start() {
    for (const int from : pipes_) {
      char ready = 0;
      ASSERT_EQ(::read(from, &ready, 1), 1);
    }
  }
  void signal(int rank, int signal) { ::kill(ids_[static_cast<std::size_t>(rank)], signal); }
  /// The exit status, negative for a signal; and the output.
  std::pair<int, std::string> end_of(int rank) {
    const auto at = static_cast<std::size_t>(rank);
    if (ids_[at] <= 0) { return {0, ""}; }
    std::string text;
    std::array<char, 512> buffer{};
    for (ssize_t count; (count = ::read(pipes_[at], buffer.data(), buffer.size())) > 0;) {
      text.append(buffer.data(), static_cast<std::size_t>(count));
    }
    int status = 0;
    ::waitpid(ids_[at], &status, 0);
    ids_[at] = -1;
    ::close(pipes_[at]);
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status), text};
  }

 private:
  void start(int rank, int port) {
    std::array<int, 2> ends{};
    ASSERT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
    const pid_t id = ::fork();
    if (id == 0) {
      ::close(ends[0]);
      ::_exit(body(rank, port, ends[1]));
    }
    ::close(ends[1]);
    ids_[static_cast<std::size_t>(rank)] = id;
    pipes_[static_cast<std::size_t>(rank)] = ends[0];
  }
  static int body(int rank, int port, int to) {
    std::string said;
    try {
      comm::TcpControlPlane control{place_of(rank, kRanks, port), 30s, 30s};
      for (int i = 0; i < 1'000'000; ++i) {
        (void)control.exchange(comm::CallKind::gather_text, std::to_string(i));
        if (i == 10) { (void)!::write(to, "+", 1); }
      }
      return 0;
    } catch (const Error& error) { said = error.what(); }
    (void)!::write(to, said.data(), said.size());
    return 4;
  }

  std::array<pid_t, kRanks> ids_{};
  std::array<int, kRanks> pipes_{};
};

TEST(LostProcess, IsNamedByTheOthersAtOnce) {
  for (int lost = 0; lost < kRanks; ++lost) {
    SCOPED_TRACE(lost);
    Processes job;
    job.wait_for_start();
    std::mt19937 random{static_cast<std::uint32_t>(lost)};
    std::this_thread::sleep_for(std::chrono::milliseconds{random() % 50});
    const auto begin = Clock::now();
    job.signal(lost, SIGKILL);
    for (int rank = 0; rank < kRanks; ++rank) {
      const auto [status, text] = job.end_of(rank);
      EXPECT_EQ(status, rank == lost ? -SIGKILL : 4);
      if (rank == lost) { continue; }
      EXPECT_THAT(text, HasSubstr("rank " + std::to_string(lost) + " ("));
      EXPECT_THAT(text, HasSubstr("has left in the middle of the run"));
    }
    EXPECT_LT(Clock::now() - begin, 3s);
  }
}

}  // namespace
}  // namespace tessera::test::lost_process_test
