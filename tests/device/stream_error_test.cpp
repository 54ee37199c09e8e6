#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <latch>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "device/cpu/host_task.hpp"
#include "tessera/base/error.hpp"
#include "tessera/device/device.hpp"

namespace tessera::stream_error_test {
namespace {

using testing::ThrowsMessage;

class FailingStreams : public testing::Test {
 protected:
  static auto throws_kaput() { return ThrowsMessage<std::runtime_error>("kaput"); }
  static void fail(const OwnedStream& stream) {
    device::enqueue(stream.get(), [] { throw std::runtime_error("kaput"); });
  }

  std::unique_ptr<Device> device = make_cpu_device();
  OwnedStream caller = device->make_compute_stream();
  OwnedStream worker = device->make_side_stream("worker");
  OwnedStream other = device->make_side_stream("other");
  OwnedEvent event = device->make_event();
  OwnedEvent later = device->make_event();
};

TEST_F(FailingStreams, WaitThrowsTheErrorOfAWorkerEveryTime) {
  fail(worker);
  EXPECT_THAT([&] { worker.get().wait(); }, throws_kaput());
  EXPECT_THAT([&] { worker.get().wait(); }, throws_kaput());
}

TEST_F(FailingStreams, RethrowIsSilentUntilTheErrorHappened) {
  std::latch open{1};
  device::enqueue(worker.get(), [&] { open.wait(); });
  fail(worker);
  EXPECT_NO_THROW(worker.get().rethrow());
  open.count_down();
  EXPECT_THAT([&] { worker.get().wait(); }, throws_kaput());
  EXPECT_THAT([&] { worker.get().rethrow(); }, throws_kaput());
}

TEST_F(FailingStreams, LaterWorkIsSkippedAndItsCapturesAreDestroyed) {
  bool ran = false;
  auto captured = std::make_shared<int>(1);
  fail(worker);
  device::enqueue(worker.get(), [&ran, captured] { ran = true; });
  EXPECT_THAT([&] { worker.get().wait(); }, throws_kaput());
  EXPECT_FALSE(ran);
  EXPECT_EQ(captured.use_count(), 1);
}

TEST_F(FailingStreams, TheFirstErrorStays) {
  fail(worker);
  device::enqueue(worker.get(), [] { throw std::logic_error("second"); });
  EXPECT_THAT([&] { worker.get().wait(); }, throws_kaput());
}

TEST_F(FailingStreams, AnErrorOfAnyTypeIsKept) {
  device::enqueue(worker.get(), [] { throw 42; });
  EXPECT_THROW(worker.get().wait(), int);
}

TEST_F(FailingStreams, ACallerThatWaitsForAFailedMarkThrows) {
  fail(worker);
  worker.get().record(event.get());
  EXPECT_THAT([&] { caller.get().wait_for(event.get()); }, throws_kaput());
}

TEST_F(FailingStreams, MarksRecordedAfterTheErrorAreReachedToo) {
  fail(worker);
  worker.get().wait_for(later.get());
  for (int i = 0; i < 100; ++i) {
    device::enqueue(worker.get(), [] {});
  }
  worker.get().record(event.get());
  EXPECT_THAT([&] { caller.get().wait_for(event.get()); }, throws_kaput());
}

// Otherwise timing would decide whether the reader of good data sees the error.
TEST_F(FailingStreams, MarksRecordedBeforeTheErrorPass) {
  device::enqueue(worker.get(), [] {});
  worker.get().record(event.get());
  fail(worker);
  EXPECT_THAT([&] { worker.get().wait(); }, throws_kaput());
  EXPECT_NO_THROW(caller.get().wait_for(event.get()));
  other.get().wait_for(event.get());
  EXPECT_NO_THROW(other.get().wait());
}

// Also holds for a wait that is enqueued before the mark is reached and runs after the error.
TEST_F(FailingStreams, MarksRecordedBeforeTheErrorPassForLateWaiters) {
  std::latch open{1};
  std::latch failed{1};
  device::enqueue(worker.get(), [&] { open.wait(); });
  worker.get().record(event.get());
  fail(worker);
  device::enqueue(other.get(), [&] { failed.wait(); });
  other.get().wait_for(event.get());
  open.count_down();
  EXPECT_THAT([&] { worker.get().wait(); }, throws_kaput());
  failed.count_down();
  EXPECT_NO_THROW(other.get().wait());
}

TEST_F(FailingStreams, AnErrorRunsThroughAChainOfStreams) {
  const OwnedStream third = device->make_side_stream("third");
  bool ran = false;
  std::latch open{1};
  device::enqueue(worker.get(), [&] { open.wait(); });
  fail(worker);
  worker.get().record(event.get());
  other.get().wait_for(event.get());
  device::enqueue(other.get(), [&] { ran = true; });
  other.get().record(later.get());
  third.get().wait_for(later.get());
  device::enqueue(third.get(), [&] { ran = true; });
  third.get().record(event.get());
  open.count_down();
  EXPECT_THAT([&] { caller.get().wait_for(event.get()); }, throws_kaput());
  EXPECT_THAT([&] { other.get().wait(); }, throws_kaput());
  EXPECT_THAT([&] { third.get().wait(); }, throws_kaput());
  EXPECT_FALSE(ran);
}

TEST_F(FailingStreams, ACallerStreamThrowsFromTheCallAndStaysEnded) {
  bool ran = false;
  EXPECT_THAT([&] { fail(caller); }, throws_kaput());
  EXPECT_THAT([&] { device::enqueue(caller.get(), [&] { ran = true; }); }, throws_kaput());
  EXPECT_THAT([&] { caller.get().wait(); }, throws_kaput());
  EXPECT_THAT([&] { caller.get().rethrow(); }, throws_kaput());
  EXPECT_FALSE(ran);
}

TEST_F(FailingStreams, ACallerStreamThatWaitedForAnErrorPassesItOn) {
  fail(worker);
  worker.get().record(event.get());
  EXPECT_THAT([&] { caller.get().wait_for(event.get()); }, throws_kaput());
  caller.get().record(later.get());
  other.get().wait_for(later.get());
  EXPECT_THAT([&] { other.get().wait(); }, throws_kaput());
}

TEST_F(FailingStreams, WhatTheCallerRecordedBeforeItsErrorPasses) {
  caller.get().record(event.get());
  EXPECT_THAT([&] { fail(caller); }, throws_kaput());
  worker.get().wait_for(event.get());
  EXPECT_NO_THROW(worker.get().wait());
}

TEST_F(FailingStreams, DestroyingAFailedStreamSkipsWhatIsLeft) {
  std::latch open{1};
  bool ran = false;
  OwnedStream brief = device->make_side_stream("brief");
  device::enqueue(brief.get(), [&] { open.wait(); });
  fail(brief);
  device::enqueue(brief.get(), [&] { ran = true; });
  brief.get().record(event.get());
  std::thread opener{[&] { open.count_down(); }};
  brief = OwnedStream{};
  opener.join();
  EXPECT_FALSE(ran);
  EXPECT_THAT([&] { caller.get().wait_for(event.get()); }, throws_kaput());
}

TEST_F(FailingStreams, ManyWaitersOfOneErrorAllSeeIt) {
  std::latch open{1};
  device::enqueue(worker.get(), [&] { open.wait(); });
  fail(worker);
  worker.get().record(event.get());
  std::vector<std::thread> threads;
  std::vector<std::string> seen(8);
  for (std::string& text : seen) {
    threads.emplace_back([&] {
      const OwnedStream mine = device->make_compute_stream();
      try {
        mine.get().wait_for(event.get());
      } catch (const std::exception& error) { text = error.what(); }
    });
  }
  open.count_down();
  for (std::thread& thread : threads) { thread.join(); }
  EXPECT_THAT(seen, testing::Each("kaput"));
}

}  // namespace
}  // namespace tessera::stream_error_test
