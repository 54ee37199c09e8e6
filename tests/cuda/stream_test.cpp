// Streams and events of CUDA keep the contract of include/tessera/device/stream.hpp.
#include <atomic>
#include <chrono>
#include <memory>
#include <new>
#include <thread>

#include "cuda/gate.hpp"
#include "cuda/support.hpp"
#include "tessera/base/error.hpp"

namespace tessera::test::stream_test {
namespace {

class CudaStreamTest : public CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    if (IsSkipped()) { return; }
    side_ = device().make_side_stream("side");
    event_ = device().make_event();
    array_ = std::make_unique<DeviceArray<unsigned char>>(bench(), 1);
    stream().wait();
  }
  void TearDown() override {
    array_.reset();
    event_ = {};
    side_ = {};
  }

  [[nodiscard]] Stream side() const { return side_.get(); }
  [[nodiscard]] Event event() const { return event_.get(); }
  void fill(unsigned char value, Stream stream) { device().fill(array_->data(), value, 1, stream); }
  [[nodiscard]] unsigned char value() { return array_->read()[0]; }

 private:
  OwnedStream side_;
  OwnedEvent event_;
  std::unique_ptr<DeviceArray<unsigned char>> array_;
};

TEST_F(CudaStreamTest, RunsWorkInOrder) {
  for (int i = 0; i <= 200; ++i) { fill(static_cast<unsigned char>(i), stream()); }
  EXPECT_EQ(value(), 200);
}

TEST_F(CudaStreamTest, DoesNotMakeTheCallerWait) {
  Gate gate{stream()};
  fill(1, stream());
  stream().record(event());
  side().wait_for(event());
  fill(2, side());
}

TEST_F(CudaStreamTest, WaitsForAnEventOfAnother) {
  Gate gate{side()};
  fill(1, side());
  side().record(event());
  stream().wait_for(event());
  fill(2, stream());
  gate.open();
  EXPECT_EQ(value(), 2);
  side().wait();
  EXPECT_EQ(value(), 2);
}

TEST_F(CudaStreamTest, TimedEventsSayWhenTheDeviceReachedThem) {
  const OwnedEvent begin = device().make_timed_event();
  const OwnedEvent end = device().make_timed_event();
  EXPECT_THROW((void)end.get().seconds_since(begin.get()), ContractError);
  stream().record(begin.get());
  stream().call([] { std::this_thread::sleep_for(std::chrono::milliseconds{50}); });
  Gate gate{stream()};
  stream().record(end.get());
  begin.get().wait();
  EXPECT_THROW((void)end.get().seconds_since(begin.get()), ContractError);
  gate.open();
  end.get().wait();
  EXPECT_GE(end.get().seconds_since(begin.get()), 0.05);
  EXPECT_LT(end.get().seconds_since(begin.get()), 10);
  EXPECT_THROW((void)end.get().seconds_since(event()), ContractError);
}

TEST_F(CudaStreamTest, PassesAnEventThatWasNeverRecorded) {
  stream().wait_for(event());
  fill(3, stream());
  event().wait();
  EXPECT_EQ(value(), 3);
}

TEST_F(CudaStreamTest, WaitsForTheMarkRecordedAtThatTime) {
  side().record(event());
  stream().wait_for(event());
  Gate gate{side()};
  side().record(event());
  fill(4, stream());
  EXPECT_EQ(value(), 4);  // though `side` has not come to where the event is now
}

TEST_F(CudaStreamTest, RecordingAgainMovesTheMark) {
  side().record(event());
  Gate gate{side()};
  std::atomic<bool> ran = false;
  side().call([&] { ran = true; });
  side().record(event());
  gate.open();
  event().wait();
  EXPECT_TRUE(ran);
}

TEST_F(CudaStreamTest, AnEventIsWaitedForAgainAndAgain) {
  fill(5, side());
  side().record(event());
  for (int i = 0; i < 3; ++i) {
    event().wait();
    stream().wait_for(event());
  }
  EXPECT_EQ(value(), 5);
}

TEST_F(CudaStreamTest, CallsRunInStreamOrder) {
  std::vector<int> order;
  stream().call([&] { order.push_back(1); });
  fill(6, stream());
  stream().record(event());
  side().wait_for(event());
  side().call([&] { order.push_back(2); });
  side().record(event());
  stream().wait_for(event());
  stream().call([&, owned = std::make_shared<int>(3)] { order.push_back(*owned); });
  stream().wait();
  EXPECT_EQ(order, (std::vector<int>{1, 2, 3}));
}

TEST_F(CudaStreamTest, DestroyingAStreamFinishesItsWork) {
  std::atomic<int> calls = 0;
  {
    const OwnedStream brief = device().make_side_stream("brief");
    for (int i = 0; i < 10; ++i) {
      brief.get().call([&] { ++calls; });
    }
  }
  EXPECT_EQ(calls, 10);
}

TEST_F(CudaStreamTest, ReturnsTheCudaHandle) {
  EXPECT_NE(stream().native(), nullptr);
  EXPECT_NE(stream().native(), side().native());
}

TEST_F(CudaStreamTest, AStreamThatWasEndedThrowsItsErrorAtEveryUse) {
  side().state()->end_with(std::make_exception_ptr(CommError{"a peer is lost"}));
  side().state()->end_with(std::make_exception_ptr(CommError{"too late"}));
  const auto expect_error = [](const std::function<void()>& use) {
    try {
      use();
      ADD_FAILURE() << "nothing is thrown";
    } catch (const CommError& error) { EXPECT_STREQ(error.what(), "a peer is lost"); }
  };
  expect_error([&] { side().rethrow(); });
  expect_error([&] { side().wait(); });
  expect_error([&] { fill(1, side()); });
  expect_error([&] { side().call([] {}); });
  fill(7, stream());
  EXPECT_EQ(value(), 7);
}

TEST_F(CudaStreamTest, ACallThatThrowsEndsOnlyItsStream) {
  side().call([] { throw std::bad_alloc{}; });
  EXPECT_THROW(side().wait(), std::bad_alloc);
  EXPECT_THROW(fill(1, side()), std::bad_alloc);
  fill(8, stream());
  EXPECT_EQ(value(), 8);
}

TEST_F(CudaStreamTest, ManyStreamsPassWorkOn) {
  std::vector<OwnedStream> streams;
  std::vector<OwnedEvent> events;
  DeviceArray<float> sum{bench(), std::vector<float>(1000, 0.0F)};
  DeviceArray<float> one{bench(), std::vector<float>(1000, 1.0F)};
  for (int i = 0; i < 8; ++i) {
    streams.push_back(device().make_side_stream("one of many"));
    events.push_back(device().make_event());
  }
  for (std::size_t i = 0; i < 100; ++i) {
    const Stream current = streams[i % 8].get();
    if (i > 0) { current.wait_for(events[(i - 1) % 8].get()); }
    table().add(sum.data(), one.data(), sum.data(), 1000, current);
    current.record(events[i % 8].get());
  }
  stream().wait_for(events[99 % 8].get());
  EXPECT_EQ(sum.read(), std::vector<float>(1000, 100.0F));
}

}  // namespace
}  // namespace tessera::test::stream_test
