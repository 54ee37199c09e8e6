// Threads that read ahead of a load.
#include "checkpoint/read_ahead.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <stdexcept>
#include <string>

namespace tessera::test::read_ahead_test {
namespace {

constexpr std::size_t kRounds = 200;
constexpr std::size_t kSlots = 3;
const checkpoint::ReadAhead::Clock::time_point kNever =
    checkpoint::ReadAhead::Clock::time_point::max();

TEST(ReadAhead, FillsEachRoundOnceAndOnlyIntoAFreeSlot) {
  std::array<std::size_t, kSlots> slots{};
  std::atomic<std::size_t> used = 0;
  std::atomic<int> too_early = 0;
  checkpoint::ReadAhead ahead{kRounds, kSlots, 4, [&](std::size_t round, std::size_t reader) {
                                if (round >= used + kSlots || reader >= 4) { ++too_early; }
                                slots[round % kSlots] += round + 1;
                              }};
  for (std::size_t round = 0; round < kRounds; ++round) {
    ASSERT_EQ(ahead.next(), round);
    ASSERT_TRUE(ahead.wait_until(kNever));
    EXPECT_EQ(slots[round % kSlots], round + 1);
    slots[round % kSlots] = 0;
    ++used;
    ahead.release();
  }
  EXPECT_EQ(ahead.next(), kRounds);
  EXPECT_EQ(too_early, 0);
}

TEST(ReadAhead, ThrowsInTheOrderOfRoundsAndBeginsNoneBehindAFailure) {
  std::atomic<std::size_t> last = 0;
  checkpoint::ReadAhead ahead{kRounds, 8, 4, [&](std::size_t round, std::size_t) {
                                for (std::size_t seen = last; round > seen;) {
                                  if (last.compare_exchange_weak(seen, round)) { break; }
                                }
                                if (round >= 5) { throw std::runtime_error{std::to_string(round)}; }
                              }};
  for (int round = 0; round < 5; ++round) {
    ASSERT_TRUE(ahead.wait_until(kNever));
    ahead.release();
  }
  try {
    (void)ahead.wait_until(kNever);
    ADD_FAILURE() << "round 5 has failed";
  } catch (const std::runtime_error& error) { EXPECT_STREQ(error.what(), "5"); }
  EXPECT_LT(last, 5U + 8U);
}

TEST(ReadAhead, ReturnsInTimeWithUnusedRoundsLeft) {
  std::atomic<bool> open = false;
  checkpoint::ReadAhead ahead{kRounds, kSlots, 2,
                              [&](std::size_t, std::size_t) { open.wait(false); }};
  EXPECT_FALSE(ahead.wait_until(checkpoint::ReadAhead::Clock::now()));
  open = true;
  open.notify_all();
  EXPECT_TRUE(ahead.wait_until(kNever));
}

}  // namespace
}  // namespace tessera::test::read_ahead_test
