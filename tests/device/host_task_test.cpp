#include "device/cpu/host_task.hpp"

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <type_traits>
#include <utility>

#include "device/cpu/task_queue.hpp"

namespace tessera::host_task_test {
namespace {

static_assert(std::is_nothrow_move_constructible_v<device::HostTask>);
static_assert(!std::is_copy_constructible_v<device::HostTask>);

TEST(HostTask, RunsWhatItHolds) {
  int count = 0;
  device::HostTask task = [&count] { ++count; };
  task();
  task();
  EXPECT_EQ(count, 2);
}

TEST(HostTask, KeepsItsCapturesInside) {
  struct Where {
    const void** at;
    std::array<char, device::HostTask::kInlineBytes - 16> largest{};
    void operator()() { *at = this; }
  };
  const void* at = nullptr;
  device::HostTask task = Where{&at};
  task();
  const auto* const begin = reinterpret_cast<const std::byte*>(&task);
  const auto* const inside = static_cast<const std::byte*>(at);
  EXPECT_GE(inside, begin);
  EXPECT_LT(inside, begin + sizeof(device::HostTask));
}

TEST(HostTask, MovesAndDestroysItsCapturesOnce) {
  auto held = std::make_shared<int>(5);
  int seen = 0;
  {
    device::HostTask task = [held, &seen] { seen = *held; };
    EXPECT_EQ(held.use_count(), 2);
    device::HostTask moved = std::move(task);
    EXPECT_EQ(held.use_count(), 2);
    EXPECT_FALSE(static_cast<bool>(task));  // NOLINT(bugprone-use-after-move): the tested behaviour
    moved();
    device::HostTask assigned = [] {};
    assigned = std::move(moved);
    EXPECT_EQ(held.use_count(), 2);
    assigned();
  }
  EXPECT_EQ(seen, 5);
  EXPECT_EQ(held.use_count(), 1);
}

TEST(HostTask, HoldsMoveOnlyCaptures) {
  int seen = 0;
  device::HostTask task = [value = std::make_unique<int>(9), &seen] { seen = *value; };
  device::HostTask moved = std::move(task);
  moved();
  EXPECT_EQ(seen, 9);
}

TEST(HostTask, ResetDestroysTheCapturesAtOnce) {
  auto held = std::make_shared<int>(1);
  device::HostTask task = [held] {};
  task.reset();
  EXPECT_EQ(held.use_count(), 1);
  EXPECT_FALSE(static_cast<bool>(task));
}

TEST(TaskQueue, IsFirstInFirstOutThroughWrapAndGrowth) {
  device::TaskQueue queue;
  int next_in = 0;
  int next_out = 0;
  int seen = -1;
  const auto push = [&] { queue.push([&seen, i = next_in++] { seen = i; }); };
  const auto pop = [&] {
    queue.pop()();
    EXPECT_EQ(seen, next_out++);
  };
  // The queue grows by 3 - 2 tasks per round, so the ring wraps at every capacity.
  for (int round = 0; round < 200; ++round) {
    for (int i = 0; i < 3; ++i) { push(); }
    for (int i = 0; i < 2; ++i) { pop(); }
  }
  while (!queue.empty()) { pop(); }
  EXPECT_EQ(next_out, 600);
}

TEST(TaskQueue, DoesNotGrowOnceItHasHeldItsMost) {
  device::TaskQueue queue;
  for (int i = 0; i < 20; ++i) {
    queue.push([] {});
  }
  while (!queue.empty()) { (void)queue.pop(); }
  const std::size_t capacity = queue.capacity();
  EXPECT_GE(capacity, 20U);
  for (int round = 0; round < 100; ++round) {
    for (int i = 0; i < 20; ++i) {
      queue.push([] {});
    }
    while (!queue.empty()) { (void)queue.pop(); }
  }
  EXPECT_EQ(queue.capacity(), capacity);
}

}  // namespace
}  // namespace tessera::host_task_test
