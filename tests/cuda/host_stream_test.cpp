// Host work ordered with a device's streams: Device::make_host_stream of CUDA.
#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <latch>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <stdexcept>
#include <thread>

#include "cuda/emulation.hpp"
#include "cuda/gate.hpp"
#include "cuda/support.hpp"
#include "tessera/base/error.hpp"

namespace tessera::test::host_stream_test {
namespace {

using ::testing::HasSubstr;

constexpr std::chrono::seconds kPatience{20};

/// A pinned byte that the device copies from.
class PinnedByte {
 public:
  explicit PinnedByte(Device& device)
      : device_{device}, data_{static_cast<unsigned char*>(device.allocate_host(1))} {}
  ~PinnedByte() { device_.free_host(data_, 1); }
  PinnedByte(const PinnedByte&) = delete;
  PinnedByte& operator=(const PinnedByte&) = delete;
  [[nodiscard]] unsigned char* get() const noexcept { return data_; }

 private:
  Device& device_;
  unsigned char* data_;
};

class CudaHostStreamTest : public CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    if (IsSkipped()) { return; }
    host_ = device().make_host_stream("host");
    side_ = device().make_side_stream("side");
    for (OwnedEvent& event : events_) { event = device().make_event(); }
    array_ = std::make_unique<DeviceArray<unsigned char>>(bench(), 1);
    pinned_ = std::make_unique<PinnedByte>(device());
    stream().wait();
  }
  void TearDown() override {
    host_ = {};
    side_ = {};
    for (OwnedEvent& event : events_) { event = {}; }
    array_.reset();
    pinned_.reset();
  }

  [[nodiscard]] Stream host() const { return host_.get(); }
  [[nodiscard]] Stream side() const { return side_.get(); }
  [[nodiscard]] Event event(std::size_t i = 0) const { return events_.at(i).get(); }
  [[nodiscard]] unsigned char& pinned() const { return *pinned_->get(); }
  void destroy_host() { host_ = {}; }
  /// Copies the pinned byte to the device.
  void send(Stream on) { device().copy_in(array_->data(), pinned_->get(), 1, on); }
  void fill(unsigned char value, Stream on) { device().fill(array_->data(), value, 1, on); }
  [[nodiscard]] unsigned char value() { return array_->read()[0]; }

 private:
  OwnedStream host_;
  OwnedStream side_;
  std::array<OwnedEvent, 2> events_;
  std::unique_ptr<DeviceArray<unsigned char>> array_;
  std::unique_ptr<PinnedByte> pinned_;
};

TEST_F(CudaHostStreamTest, RunsItsTasksInOrderOnAThreadOfItsOwn) {
  std::vector<int> order;
  std::set<std::thread::id> threads;
  for (int i = 0; i < 20; ++i) {
    host().call([&, i] {
      order.push_back(i);
      threads.insert(std::this_thread::get_id());
    });
  }
  host().wait();
  EXPECT_TRUE(std::ranges::is_sorted(order));
  EXPECT_EQ(order.size(), 20U);
  EXPECT_EQ(threads.size(), 1U);
  std::thread::id of_callbacks;
  side().call([&] { of_callbacks = std::this_thread::get_id(); });
  side().wait();
  EXPECT_FALSE(threads.contains(of_callbacks));
  EXPECT_FALSE(threads.contains(std::this_thread::get_id()));
}

// A driver may run all host functions on one thread.
TEST_F(CudaHostStreamTest, FunctionsOfCudaRunWhileATaskIsHeld) {
  std::optional<Emulation> emulation;
  if (Emulation::there()) { emulation.emplace().set_callbacks(1); }
  std::promise<void> ran;
  std::future<void> seen = ran.get_future();
  bool in_time = false;
  std::latch held{1};
  host().call([&] {
    held.count_down();
    in_time = seen.wait_for(kPatience) == std::future_status::ready;
  });
  held.wait();
  side().call([&] { ran.set_value(); });
  side().wait();
  host().wait();
  EXPECT_TRUE(in_time);
}

TEST_F(CudaHostStreamTest, WaitsForAnEventOfTheDevice) {
  Gate gate{side()};
  std::vector<int> order;
  side().call([&] { order.push_back(1); });
  side().record(event());
  host().wait_for(event());
  host().call([&] { order.push_back(2); });
  gate.open();
  host().wait();
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
}

TEST_F(CudaHostStreamTest, WaitsForTheMarkRecordedAtThatTime) {
  Gate before{side()};
  side().record(event());
  host().wait_for(event());
  const OwnedStream other = device().make_side_stream("other");
  Gate after{other.get()};
  other.get().record(event());
  before.open();
  host().wait();  // though `other` has not reached the event's new place
}

TEST_F(CudaHostStreamTest, TheDeviceWaitsForItAndNoThreadForTheDevice) {
  std::latch enqueued{1};
  fill(1, stream());
  host().call([&] {
    enqueued.wait();
    pinned() = 7;
  });
  host().record(event());
  stream().wait_for(event());
  send(stream());
  enqueued.count_down();
  EXPECT_EQ(value(), 7);
}

TEST_F(CudaHostStreamTest, ThreadsCanWaitForItsEvents) {
  std::atomic<int> ran = 0;
  host().call([&] { ++ran; });
  host().record(event());
  event().wait();
  EXPECT_EQ(ran, 1);
  std::latch opened{1};
  host().call([&] { opened.wait(); });
  side().record(event());
  event().wait();  // it now marks only the device's work
  host().record(event());
  opened.count_down();
  event().wait();
  host().wait();
}

TEST_F(CudaHostStreamTest, AnotherHostStreamCanWaitForIt) {
  const OwnedStream other = device().make_host_stream("other");
  std::latch opened{1};
  std::vector<int> order;
  host().call([&] {
    opened.wait();
    order.push_back(1);
  });
  host().record(event());
  other.get().wait_for(event());
  other.get().call([&] { order.push_back(2); });
  opened.count_down();
  other.get().wait();
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
}

// Enough rounds to wrap the word that the device polls.
TEST_F(CudaHostStreamTest, TheDeviceAndTheHostTakeTurns) {
  std::optional<Emulation> emulation;
  if (Emulation::there()) { emulation.emplace().set_delay_us(50); }
  std::vector<int> seen;
  pinned() = 0;
  for (int i = 0; i < 40; ++i) {
    host().call([&] { ++pinned(); });
    host().record(event(0));
    side().wait_for(event(0));
    send(side());
    side().call([&] { seen.push_back(pinned()); });
    side().record(event(1));
    host().wait_for(event(1));
  }
  side().wait();
  std::vector<int> expected(40);
  std::iota(expected.begin(), expected.end(), 1);
  EXPECT_EQ(seen, expected);
  EXPECT_EQ(value(), 40);
}

TEST_F(CudaHostStreamTest, AnErrorSkipsLaterWorkAndNothingHangs) {
  std::atomic<bool> ran = false;
  host().record(event(1));
  std::latch enqueued{1};
  host().call([&] {
    enqueued.wait();
    throw std::runtime_error{"a task's"};
  });
  host().call([&] { ran = true; });
  host().record(event(0));
  side().wait_for(event(0));
  fill(3, side());
  enqueued.count_down();
  const auto expect_error = [](const std::function<void()>& use) {
    try {
      use();
      ADD_FAILURE() << "nothing is thrown";
    } catch (const std::runtime_error& error) { EXPECT_STREQ(error.what(), "a task's"); }
  };
  expect_error([&] { event(0).wait(); });
  expect_error([&] { side().wait(); });
  expect_error([&] { side().rethrow(); });
  expect_error([&] { fill(4, side()); });
  expect_error([&] { host().wait(); });
  expect_error([&] { host().rethrow(); });
  expect_error([&] { host().call([] {}); });
  EXPECT_FALSE(ran);
  event(1).wait();  // recorded before the error
  stream().wait_for(event(1));
  EXPECT_EQ(value(), 3);
}

TEST_F(CudaHostStreamTest, ADeviceThatFailsEndsItWithItsError) {
  TESSERA_EMULATION_ONLY();
  Gate gate{side()};
  std::atomic<bool> ran = false;
  {
    Emulation emulation;
    side().record(event());
    host().wait_for(event());
    host().call([&] { ran = true; });
    emulation.fail("cudaStreamSynchronize", 1, Emulation::kIllegalAddress);
    EXPECT_THROW(host().wait(), DeviceError);
    EXPECT_THROW(host().rethrow(), DeviceError);
  }
  EXPECT_FALSE(ran);
}

TEST_F(CudaHostStreamTest, DestroyingItOnAFailedDeviceDoesNotWait) {
  TESSERA_EMULATION_ONLY();
  Gate gate{side()};
  std::atomic<bool> ran = false;
  {
    Emulation emulation;
    side().record(event());
    host().wait_for(event());
    host().call([&] { ran = true; });
    emulation.fail("cudaStreamSynchronize", 1, Emulation::kIllegalAddress);
    destroy_host();
  }
  EXPECT_FALSE(ran);
}

TEST_F(CudaHostStreamTest, DestroyingItFinishesItsWork) {
  std::atomic<int> calls = 0;
  Gate gate{side()};
  side().record(event());
  host().wait_for(event());
  for (int i = 0; i < 10; ++i) {
    host().call([&] { ++calls; });
  }
  gate.open();
  destroy_host();
  EXPECT_EQ(calls, 10);
}

TEST_F(CudaHostStreamTest, MeasuresTimeInStreamOrder) {
  std::vector<std::int64_t> told;
  host().tell_time([&](std::int64_t ns) { told.push_back(ns); });
  host().call([] { std::this_thread::sleep_for(std::chrono::milliseconds{2}); });
  host().tell_time([&](std::int64_t ns) { told.push_back(ns); });
  host().wait();
  ASSERT_EQ(told.size(), 2U);
  EXPECT_GE(told[1] - told[0], 2'000'000);
}

TEST_F(CudaHostStreamTest, IsNotACudaStreamAndRefusesTimedEvents) {
  EXPECT_EQ(host().native(), nullptr);
  EXPECT_THROW(fill(1, host()), ContractError);
  const OwnedEvent timed = device().make_timed_event();
  EXPECT_THROW(host().record(timed.get()), ContractError);
  side().record(timed.get());
  host().wait_for(timed.get());
  host().wait();
}

TEST_F(CudaHostStreamTest, CannotBeUsedInAGraph) {
  const std::unique_ptr<WorkGraph> graph = device().make_graph();
  host().record(event(0));
  graph->run(stream(), {host()}, [&] {
    EXPECT_THROW(host().record(event(1)), ContractError);
    EXPECT_THROW(host().wait_for(event(0)), ContractError);
    EXPECT_THROW(host().call([] {}), ContractError);
    EXPECT_THROW(host().tell_time([](std::int64_t) {}), ContractError);
    EXPECT_THROW(host().wait(), ContractError);
    stream().wait_for(event(0));  // the graph starts after it
    fill(5, stream());
  });
  EXPECT_EQ(value(), 5);
}

TEST_F(CudaHostStreamTest, AGraphStartsAfterItAndItGoesOnAfterTheGraph) {
  const std::unique_ptr<WorkGraph> graph = device().make_graph();
  std::latch enqueued{1};
  int order = 0;
  host().call([&] {
    enqueued.wait();
    pinned() = 9;
  });
  graph->run(stream(), {host()}, [&] {
    send(stream());
    stream().call([&] { order = 1; });
  });
  host().call([&] { order = order == 1 ? 2 : -1; });
  enqueued.count_down();
  host().wait();
  EXPECT_EQ(order, 2);
  EXPECT_EQ(value(), 9);
}

TEST_F(CudaHostStreamTest, ADriverWithoutTheWaitIsRefused) {
  TESSERA_EMULATION_ONLY();
  const auto refusal = [&]() -> std::string {
    try {
      (void)device().make_host_stream("refused");
    } catch (const ConfigError& error) { return error.what(); }
    return "none";
  };
  Emulation emulation;
  emulation.fail("cudaGetDriverEntryPoint", 1, Emulation::kInvalidValue);
  EXPECT_THAT(refusal(), HasSubstr("the CUDA driver has no cuStreamWaitValue32"));
  emulation.fail("cuStreamWaitValue32", 1, Emulation::kNotSupported);
  EXPECT_THAT(refusal(), HasSubstr("fails with the driver's error 801; update the driver"));
  EXPECT_EQ(refusal(), "none");
}

}  // namespace
}  // namespace tessera::test::host_stream_test
