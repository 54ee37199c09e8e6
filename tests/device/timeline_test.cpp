#include "device/cpu/timeline.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <exception>
#include <latch>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

#include "device/cpu/cpu_event.hpp"
#include "device/cpu/cpu_stream.hpp"
#include "device/cpu/host_task.hpp"
#include "tessera/device/device.hpp"

namespace tessera::timeline_test {
namespace {

using testing::ThrowsMessage;

std::exception_ptr error(const char* text) {
  return std::make_exception_ptr(std::runtime_error(text));
}

TEST(Timeline, HasPassedReachedTickets) {
  device::Timeline timeline;
  EXPECT_TRUE(timeline.passed(0));
  EXPECT_FALSE(timeline.passed(1));
  timeline.reach_next(nullptr);
  EXPECT_TRUE(timeline.passed(1));
  EXPECT_FALSE(timeline.passed(2));
  EXPECT_NO_THROW(timeline.wait(1));
  EXPECT_NO_THROW(timeline.rethrow());
}

TEST(Timeline, AnErrorHoldsFromItsTicketOnAndTheFirstOneStays) {
  device::Timeline timeline;
  timeline.reach_next(nullptr);
  timeline.reach_next(error("first"));
  timeline.reach_next(error("second"));
  EXPECT_TRUE(timeline.passed(1));
  EXPECT_NO_THROW(timeline.wait(1));
  for (const std::uint64_t ticket : {2U, 3U}) {
    EXPECT_FALSE(timeline.passed(ticket));
    EXPECT_THAT([&] { timeline.wait(ticket); }, ThrowsMessage<std::runtime_error>("first"));
  }
  EXPECT_THAT([&] { timeline.rethrow(); }, ThrowsMessage<std::runtime_error>("first"));
}

TEST(Timeline, AnEndedTimelineGivesItsErrorToLaterWaiters) {
  device::Timeline timeline;
  timeline.reach_next(nullptr);
  EXPECT_NO_THROW(timeline.rethrow(7));
  std::thread waits{
      [&] { EXPECT_THAT([&] { timeline.wait(3); }, ThrowsMessage<std::runtime_error>("ended")); }};
  timeline.end(error("ended"));
  waits.join();
  timeline.end(error("once more"));
  timeline.reach_next(error("too late"));
  EXPECT_NO_THROW(timeline.wait(1));
  EXPECT_TRUE(timeline.passed(1));
  EXPECT_NO_THROW(timeline.rethrow(1));
  EXPECT_FALSE(timeline.passed(2));
  EXPECT_THAT([&] { timeline.wait(2); }, ThrowsMessage<std::runtime_error>("ended"));
  EXPECT_THAT([&] { timeline.rethrow(2); }, ThrowsMessage<std::runtime_error>("ended"));
}

TEST(Timeline, ReportsEveryTicketIncludingSkippedOnes) {
  struct Listener final : device::TimelineListener {
    void reached(std::uint64_t ticket) noexcept override { tickets.push_back(ticket); }
    std::vector<std::uint64_t> tickets;
  };
  const auto listener = std::make_shared<Listener>();
  {
    device::WorkerStream stream{"told"};
    stream.tell(listener);
    stream.call([] {});
    stream.call([] { throw std::runtime_error{"a task's"}; });
    stream.call([] {});
  }
  EXPECT_EQ(listener->tickets, (std::vector<std::uint64_t>{1, 2, 3}));
}

// A caller that has waited for a mark may reuse what earlier work held.
TEST(Timeline, IsReachedAfterTheCapturesOfATaskAreDestroyed) {
  struct Probe {
    const device::CpuEvent* event;
    bool* reached;
    ~Probe() {
      const device::Mark mark = event->mark();
      *reached = mark.timeline->passed(mark.ticket);
    }
  };
  const auto device = make_cpu_device();
  const OwnedEvent event = device->make_event();
  const OwnedStream worker = device->make_side_stream("worker");
  std::latch recorded{1};
  bool reached = true;
  auto* const state = dynamic_cast<const device::CpuEvent*>(event.get().state());
  ASSERT_NE(state, nullptr);
  device::enqueue(
      worker.get(),
      [&recorded, probe = std::unique_ptr<Probe>{new Probe{state, &reached}}] { recorded.wait(); });
  worker.get().record(event.get());
  recorded.count_down();
  worker.get().wait();
  EXPECT_FALSE(reached);
}

}  // namespace
}  // namespace tessera::timeline_test
