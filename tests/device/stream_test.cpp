#include <gtest/gtest.h>
#include <pthread.h>

#include <array>
#include <chrono>
#include <latch>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "device/cpu/host_task.hpp"
#include "tessera/base/error.hpp"
#include "tessera/device/device.hpp"

namespace tessera::stream_test {
namespace {

class CpuStreams : public testing::Test {
 protected:
  std::unique_ptr<Device> device = make_cpu_device();
  OwnedStream caller = device->make_compute_stream();
  OwnedStream worker = device->make_side_stream("worker");
  OwnedStream other = device->make_side_stream("other");
  OwnedEvent event = device->make_event();
};

TEST_F(CpuStreams, ACallerStreamRunsTasksOnTheSubmitterBeforeReturning) {
  std::thread::id ran_on;
  device::enqueue(caller.get(), [&] { ran_on = std::this_thread::get_id(); });
  EXPECT_EQ(ran_on, std::this_thread::get_id());
}

TEST_F(CpuStreams, AWorkerRunsTasksOnOneThreadThatIsNotTheSubmitter) {
  std::thread::id first;
  std::thread::id second;
  device::enqueue(worker.get(), [&] { first = std::this_thread::get_id(); });
  device::enqueue(worker.get(), [&] { second = std::this_thread::get_id(); });
  worker.get().wait();
  EXPECT_NE(first, std::thread::id{});
  EXPECT_NE(first, std::this_thread::get_id());
  EXPECT_EQ(first, second);
}

TEST_F(CpuStreams, AWorkerThreadCarriesTheFirstFifteenBytesOfItsName) {
  const OwnedStream named = device->make_side_stream("rank 3: gather stream");
  std::array<char, 16> name{};
  device::enqueue(named.get(),
                  [&] { pthread_getname_np(pthread_self(), name.data(), name.size()); });
  named.get().wait();
  EXPECT_STREQ(name.data(), "rank 3: gather ");
}

TEST_F(CpuStreams, TimedEventsSayWhenTheirStreamReachedThem) {
  const OwnedEvent begin = device->make_timed_event();
  const OwnedEvent end = device->make_timed_event();
  for (const Stream stream : {caller.get(), worker.get()}) {
    std::latch recorded{1};
    stream.record(begin.get());
    const bool waits = stream.state() == worker.get().state();
    device::enqueue(stream, [&] {
      if (waits) { recorded.wait(); }
      std::this_thread::sleep_for(std::chrono::milliseconds{20});
    });
    stream.record(end.get());
    recorded.count_down();
    end.get().wait();
    EXPECT_GE(end.get().seconds_since(begin.get()), 0.02);
    EXPECT_LT(end.get().seconds_since(begin.get()), 10);
    EXPECT_EQ(end.get().seconds_since(end.get()), 0);
  }
}

TEST_F(CpuStreams, OnlyTimedEventsThatHavePassedHaveATime) {
  const OwnedEvent begin = device->make_timed_event();
  const OwnedEvent end = device->make_timed_event();
  EXPECT_THROW((void)end.get().seconds_since(begin.get()), ContractError);
  std::latch open{1};
  worker.get().record(begin.get());
  worker.get().record(event.get());
  device::enqueue(worker.get(), [&] { open.wait(); });
  worker.get().record(end.get());
  EXPECT_THROW((void)end.get().seconds_since(begin.get()), ContractError);
  open.count_down();
  worker.get().wait();
  EXPECT_GE(end.get().seconds_since(begin.get()), 0);
  EXPECT_THROW((void)end.get().seconds_since(event.get()), ContractError);
}

// The first task blocks while more tasks are pushed than the ring initially holds, so the ring must
// grow while it holds tasks.
TEST_F(CpuStreams, AWorkerKeepsTheOrderOfManyWaitingTasks) {
  std::latch open{1};
  std::vector<int> order;
  device::enqueue(worker.get(), [&] { open.wait(); });
  for (int i = 0; i < 1000; ++i) {
    device::enqueue(worker.get(), [&order, i] { order.push_back(i); });
  }
  open.count_down();
  worker.get().wait();
  ASSERT_EQ(order.size(), 1000U);
  for (int i = 0; i < 1000; ++i) { EXPECT_EQ(order[static_cast<std::size_t>(i)], i); }
}

TEST_F(CpuStreams, EnqueueingDoesNotWaitForTheWork) {
  std::latch open{1};
  device::enqueue(worker.get(), [&] { open.wait(); });
  worker.get().record(event.get());
  other.get().wait_for(event.get());
  open.count_down();  // reached only if none of the calls above blocked
  other.get().wait();
}

// The value is written without any lock: only the event orders the two threads.
TEST_F(CpuStreams, AnEventOrdersTwoWorkers) {
  std::latch open{1};
  int value = 0;
  int seen = -1;
  device::enqueue(worker.get(), [&] { open.wait(); });
  device::enqueue(worker.get(), [&] { value = 7; });
  worker.get().record(event.get());
  other.get().wait_for(event.get());
  device::enqueue(other.get(), [&] { seen = value; });
  open.count_down();
  other.get().wait();
  EXPECT_EQ(seen, 7);
}

TEST_F(CpuStreams, ACallerBlocksUntilTheEventIsReached) {
  std::latch open{1};
  int value = 0;
  device::enqueue(worker.get(), [&] { open.wait(); });
  device::enqueue(worker.get(), [&] { value = 7; });
  worker.get().record(event.get());
  std::thread opener{[&] { open.count_down(); }};
  caller.get().wait_for(event.get());
  EXPECT_EQ(value, 7);
  opener.join();
}

TEST_F(CpuStreams, AWorkerSeesWhatTheCallerDidBeforeItRecorded) {
  int value = 0;
  int seen = -1;
  device::enqueue(caller.get(), [&] { value = 3; });
  caller.get().record(event.get());
  worker.get().wait_for(event.get());
  device::enqueue(worker.get(), [&] { seen = value; });
  worker.get().wait();
  EXPECT_EQ(seen, 3);
}

TEST_F(CpuStreams, AThreadWaitsForAnEventAndNotForWhatCameAfter) {
  std::latch later{1};
  int value = 0;
  event.get().wait();  // never recorded
  device::enqueue(worker.get(), [&] { value = 7; });
  worker.get().record(event.get());
  device::enqueue(worker.get(), [&] { later.wait(); });
  event.get().wait();
  EXPECT_EQ(value, 7);
  later.count_down();
  device::enqueue(worker.get(), [] { throw std::runtime_error{"broken"}; });
  worker.get().record(event.get());
  EXPECT_THROW(event.get().wait(), std::runtime_error);
}

TEST_F(CpuStreams, ANeverRecordedEventIsPassedAtOnce) {
  bool ran = false;
  worker.get().wait_for(event.get());
  device::enqueue(worker.get(), [&] { ran = true; });
  worker.get().wait();
  caller.get().wait_for(event.get());
  EXPECT_TRUE(ran);
}

TEST_F(CpuStreams, WaitingForItsOwnEventReturnsAtOnce) {
  std::latch open{1};
  device::enqueue(worker.get(), [&] { open.wait(); });
  worker.get().record(event.get());
  worker.get().wait_for(event.get());
  open.count_down();
  worker.get().wait();
  caller.get().record(event.get());
  caller.get().wait_for(event.get());
}

// The mark is taken when wait_for is called, not when the waiting stream gets there.
TEST_F(CpuStreams, RecordingAgainDoesNotMoveAnEarlierWait) {
  std::latch open{1};
  bool passed = false;
  device::enqueue(worker.get(), [] {});
  worker.get().record(event.get());
  other.get().wait_for(event.get());
  device::enqueue(other.get(), [&] { passed = true; });
  device::enqueue(worker.get(), [&] { open.wait(); });
  worker.get().record(event.get());  // now behind the closed latch
  other.get().wait();                // would hang if the wait had moved to the new mark
  EXPECT_TRUE(passed);
  open.count_down();
  worker.get().wait();
}

TEST_F(CpuStreams, AWaitAfterRecordingAgainWaitsForTheNewMark) {
  std::latch open{1};
  int value = 0;
  int seen = -1;
  worker.get().record(event.get());
  device::enqueue(worker.get(), [&] { open.wait(); });
  device::enqueue(worker.get(), [&] { value = 2; });
  worker.get().record(event.get());
  other.get().wait_for(event.get());
  device::enqueue(other.get(), [&] { seen = value; });
  open.count_down();
  other.get().wait();
  EXPECT_EQ(seen, 2);
}

TEST_F(CpuStreams, AnEventMayMoveToAnotherStream) {
  std::latch open{1};
  device::enqueue(worker.get(), [&] { open.wait(); });
  worker.get().record(event.get());
  other.get().record(event.get());
  caller.get().wait_for(event.get());  // would hang on the worker's mark
  open.count_down();
  worker.get().wait();
}

TEST_F(CpuStreams, AnEventOutlivesItsStream) {
  int value = 0;
  {
    const OwnedStream brief = device->make_side_stream("brief");
    device::enqueue(brief.get(), [&] { value = 1; });
    brief.get().record(event.get());
  }
  caller.get().wait_for(event.get());
  EXPECT_EQ(value, 1);
}

TEST_F(CpuStreams, DestroyingAStreamFinishesItsWork) {
  std::latch open{1};
  int count = 0;
  OwnedStream brief = device->make_side_stream("brief");
  device::enqueue(brief.get(), [&] { open.wait(); });
  for (int i = 0; i < 100; ++i) {
    device::enqueue(brief.get(), [&] { ++count; });
  }
  std::thread opener{[&] { open.count_down(); }};
  brief = OwnedStream{};
  EXPECT_EQ(count, 100);
  opener.join();
}

// Marks pass in both directions for many rounds; each side adds to the other's result.
TEST_F(CpuStreams, TwoWorkersHandAValueBackAndForth) {
  const OwnedEvent back = device->make_event();
  long value = 0;
  constexpr int rounds = 2000;
  for (int i = 0; i < rounds; ++i) {
    device::enqueue(worker.get(), [&] { value = 2 * value % 1'000'003; });
    worker.get().record(event.get());
    other.get().wait_for(event.get());
    device::enqueue(other.get(), [&] { value += 1; });
    other.get().record(back.get());
    worker.get().wait_for(back.get());
  }
  worker.get().wait();
  long expected = 0;
  for (int i = 0; i < rounds; ++i) { expected = 2 * expected % 1'000'003 + 1; }
  EXPECT_EQ(value, expected);
}

TEST_F(CpuStreams, ManyThreadsMayWaitForDifferentMarksOfOneStream) {
  constexpr int marks = 8;
  std::vector<OwnedEvent> events;
  std::array<int, marks> values{};
  std::latch open{1};
  device::enqueue(worker.get(), [&] { open.wait(); });
  for (int i = 0; i < marks; ++i) {
    device::enqueue(worker.get(), [&values, i] { values.at(static_cast<std::size_t>(i)) = i + 1; });
    events.push_back(device->make_event());
    worker.get().record(events.back().get());
  }
  std::array<int, marks> seen{};
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < marks; ++i) {
    threads.emplace_back([&, i] {
      const OwnedStream mine = device->make_compute_stream();
      mine.get().wait_for(events[i].get());
      seen.at(i) = values.at(i);
    });
  }
  open.count_down();
  for (std::thread& thread : threads) { thread.join(); }
  for (int i = 0; i < marks; ++i) { EXPECT_EQ(seen.at(static_cast<std::size_t>(i)), i + 1); }
}

TEST_F(CpuStreams, AnEmptyHandleIsRefused) {
  EXPECT_THROW(device::enqueue(Stream{}, [] {}), ContractError);
  EXPECT_THROW(device::enqueue(worker.get(), device::HostTask{}), ContractError);
  EXPECT_THROW(Stream{}.record(event.get()), ContractError);
  EXPECT_THROW(Stream{}.wait(), ContractError);
  EXPECT_THROW(worker.get().wait_for(Event{}), ContractError);
  EXPECT_EQ(Stream{}.native(), nullptr);
  EXPECT_EQ(worker.get().native(), nullptr);
}

}  // namespace
}  // namespace tessera::stream_test
