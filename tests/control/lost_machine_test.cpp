// A machine that disappears: the test switches off the ranks' network, in its own network
// namespace.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <net/if.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/wait.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>

#include "comm/control/tcp/listening.hpp"
#include "comm/control/tcp/socket.hpp"
#include "control/meeting.hpp"
#include "tessera/base/error.hpp"

namespace tessera::test::lost_machine_test {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto kBound = 10s;
constexpr int kNoNameSpace = 77;

/// Switches the namespace's loopback on or off; in a new namespace it is off.
bool set_loopback(bool up) {
  const int socket = ::socket(AF_INET, SOCK_DGRAM, 0);
  ifreq request{};
  std::snprintf(request.ifr_name, sizeof request.ifr_name, "lo");
  bool done = ::ioctl(socket, SIOCGIFFLAGS, &request) == 0;
  const auto flags = static_cast<unsigned>(request.ifr_flags);
  request.ifr_flags = static_cast<short>(up ? flags | IFF_UP : flags & ~unsigned{IFF_UP});
  done = done && ::ioctl(socket, SIOCSIFFLAGS, &request) == 0;
  ::close(socket);
  return done;
}

/// Runs in its own process and prints the outcome; the exit status is 0 if all is right.
int lose_the_network() {
  if (::unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0 || !set_loopback(true)) { return kNoNameSpace; }
  Meeting meeting{2, 60s};
  std::atomic<int> met = 0;
  meeting.start(0, [&](comm::TcpControlPlane& control) {  // waits with nothing in flight
    (void)control.exchange(comm::CallKind::setup, {});
    ++met;
    (void)control.exchange(comm::CallKind::setup, {});
  });
  meeting.start(1, [&](comm::TcpControlPlane& control) {  // keeps reporting its calls
    (void)control.exchange(comm::CallKind::setup, {});
    ++met;
    for (;;) {
      (void)control.note_batch(comm::CallKind::gather_batch, "a batch");
      std::this_thread::sleep_for(10ms);
    }
  });
  while (met < 2) { std::this_thread::sleep_for(1ms); }
  if (!set_loopback(false)) { return kNoNameSpace; }
  const auto begin = Clock::now();
  meeting.join();
  const auto seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  std::printf("%.1f s, %s, %s\n", seconds, meeting.error(0).c_str(), meeting.error(1).c_str());
  const bool named = meeting.error(0).starts_with("rank 1 (process ") &&
                     meeting.error(1).starts_with("rank 0 (at 127.0.0.1:");
  return named && Clock::now() - begin < kBound ? 0 : 1;
}

TEST(LostMachine, IsNoticedByAllWithinTenSeconds) {
  std::fflush(stdout);
  const pid_t child = ::fork();
  if (child == 0) {
    const int status = lose_the_network();
    std::fflush(stdout);
    std::_Exit(status);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == kNoNameSpace) { GTEST_SKIP() << "needs a network name space"; }
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

int option(const comm::Socket& socket, int level, int name) {
  int value = 0;
  socklen_t bytes = sizeof value;
  EXPECT_EQ(::getsockopt(socket.handle(), level, name, &value, &bytes), 0);
  return value;
}

// Needs no network namespace.
TEST(LostMachine, BothEndsTellTheSystemToStopWaiting) {
  const comm::HostPort place{"127.0.0.1", free_port()};
  const comm::Socket listener = comm::listen_at(place);
  std::string why;
  comm::WaitClock clock{5s};
  const comm::Socket mine = comm::connect_to(place, clock, clock.now() + 5s, why);
  ASSERT_TRUE(mine) << why;
  const comm::Socket theirs = comm::accept_from(listener);
  ASSERT_TRUE(theirs);
  for (const comm::Socket* const end : {&mine, &theirs}) {
    EXPECT_EQ(option(*end, SOL_SOCKET, SO_KEEPALIVE), 1);
    const int probes =
        option(*end, IPPROTO_TCP, TCP_KEEPIDLE) +
        option(*end, IPPROTO_TCP, TCP_KEEPINTVL) * option(*end, IPPROTO_TCP, TCP_KEEPCNT);
    EXPECT_LT(std::chrono::seconds{probes}, kBound);
    const int unacknowledged = option(*end, IPPROTO_TCP, TCP_USER_TIMEOUT);
    EXPECT_GT(unacknowledged, 0);
    EXPECT_LT(std::chrono::milliseconds{unacknowledged}, kBound);
  }
}

}  // namespace
}  // namespace tessera::test::lost_machine_test
