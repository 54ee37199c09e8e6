// The clock of deadlines, with hand-made real times.
#include "comm/control/wait_clock.hpp"

#include <gtest/gtest.h>

#include <thread>

namespace tessera::test::wait_clock_test {
namespace {

using namespace std::chrono_literals;

comm::WaitClock::Time real_now{};

comm::WaitClock::Time read_real_now() {
  return real_now;
}

/// What a clock for waits of `longest` counts while real time passes in steps of `gap`.
comm::WaitClock::Duration counted(comm::WaitClock::Duration longest, comm::WaitClock::Duration gap,
                                  int steps) {
  comm::WaitClock clock{longest, &read_real_now};
  const comm::WaitClock::Time begin = clock.now();
  for (int i = 0; i < steps; ++i) {
    real_now += gap;
    (void)clock.now();
  }
  return clock.now() - begin;
}

TEST(WaitClock, CountsAllTimeInWhichItIsReadOften) {
  EXPECT_EQ(counted(300s, 500ms, 600), 300s);
  EXPECT_EQ(counted(100ms, 50ms, 4), 200ms);
  comm::WaitClock clock{20s, &read_real_now};
  EXPECT_EQ(counted(20s, clock.tick(), 1000), 1000 * clock.tick());
}

TEST(WaitClock, StandsStillWhileTheWaiterDoesNotRun) {
  EXPECT_LE(counted(300s, 10h, 1), 1s);
  EXPECT_LE(counted(300s, 10h, 16), 16s);
  EXPECT_LE(counted(2s, 1min, 1), 250ms);
  comm::WaitClock clock{2s, &read_real_now};
  real_now += 1min;
  const comm::WaitClock::Time stopped = clock.now();
  real_now += 10ms;
  EXPECT_EQ(clock.now() - stopped, 10ms);
}

TEST(WaitClock, CountsAllOfACallThatBlocksButNotWhatWasBeforeIt) {
  comm::WaitClock clock{300s, &read_real_now};
  const comm::WaitClock::Time begin = clock.now();
  real_now += 10h;  // suspended before the call
  EXPECT_EQ(clock.count_all([] { return (real_now += 30s, 7); }), 7);
  EXPECT_EQ(clock.now() - begin, 31s);
}

// The slowest wakings of a busy machine are some tenths of a second apart.
TEST(WaitClock, OfAStarvedWaiterStillReachesTheDeadline) {
  EXPECT_EQ(counted(300s, 900ms, 100), 90s);
  EXPECT_GE(counted(300s, 4s, 100), 100s) << "slower, but it gets there";
}

TEST(WaitClock, WaitsUntilItIsDoneOrTheTimeHasPassed) {
  std::mutex mutex;
  std::condition_variable changed;
  std::unique_lock lock{mutex};
  bool done = false;
  const auto begin = comm::WaitClock::Real::now();
  EXPECT_FALSE(comm::WaitClock{300ms}.wait_for(changed, lock, 300ms, [&] { return done; }));
  EXPECT_GE(comm::WaitClock::Real::now() - begin, 300ms);
  std::thread other{[&] {
    const std::scoped_lock own{mutex};
    done = true;
    changed.notify_all();
  }};
  EXPECT_TRUE(comm::WaitClock{1min}.wait_for(changed, lock, 1min, [&] { return done; }));
  lock.unlock();
  other.join();
}

}  // namespace
}  // namespace tessera::test::wait_clock_test
