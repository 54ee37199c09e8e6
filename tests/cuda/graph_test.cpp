// Captured work has the same results as uncaptured work: WorkGraph of tessera/device/device.hpp.
#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <thread>

#include "cuda/emulation.hpp"
#include "cuda/gate.hpp"
#include "cuda/support.hpp"
#include "tessera/base/error.hpp"

namespace tessera::test::graph_test {
namespace {

constexpr std::int64_t kElems = 1000;
constexpr std::size_t kBytes = kElems * sizeof(float);

std::vector<float> all(float value) {
  return std::vector<float>(kElems, value);
}

class CudaGraphTest : public CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    if (IsSkipped()) { return; }
    side_ = device().make_side_stream("side");
    for (OwnedEvent& event : events_) { event = device().make_event(); }
    graph_ = device().make_graph();
    for (auto& array : arrays_) {
      array = std::make_unique<DeviceArray<float>>(bench(), all(1.0F));
    }
  }
  void TearDown() override {
    if (graph_) { stream().wait(); }
    for (auto& array : arrays_) { array.reset(); }
    graph_.reset();
    for (OwnedEvent& event : events_) { event = {}; }
    side_ = {};
  }

  [[nodiscard]] Stream side() const { return side_.get(); }
  [[nodiscard]] Event event(std::size_t i) const { return events_.at(i).get(); }
  [[nodiscard]] DeviceArray<float>& array(std::size_t i) { return *arrays_.at(i); }
  void run(const std::function<void()>& body) { graph_->run(stream(), {side()}, body); }
  /// array(to) += array(from).
  void add(std::size_t to, std::size_t from, Stream on) {
    table().add(array(to).data(), array(from).data(), array(to).data(), kElems, on);
  }

  /// Uses both streams with an event in each direction: array 0 = 2, doubled on `side`, then plus
  /// 1.
  void two_streams() {
    add(0, 1, stream());
    stream().record(event(0));
    side().wait_for(event(0));
    device().copy(array(2).data(), array(0).data(), kBytes, side());
    add(0, 2, side());
    side().record(event(1));
    stream().wait_for(event(1));
    add(0, 1, stream());
  }

  void expect_usable() {
    run([&] { add(3, 1, stream()); });
    add(3, 1, stream());
    EXPECT_EQ(array(3).read(), all(3.0F));
  }

 private:
  OwnedStream side_;
  std::array<OwnedEvent, 3> events_;
  std::unique_ptr<WorkGraph> graph_;
  std::array<std::unique_ptr<DeviceArray<float>>, 4> arrays_;
};

TEST_F(CudaGraphTest, GivesTheSameResultAsWithoutAGraph) {
  two_streams();
  EXPECT_EQ(array(0).read(), all(5.0F));
  array(0).write(all(1.0F));
  run([&] { two_streams(); });
  EXPECT_EQ(array(0).read(), all(5.0F));
}

TEST_F(CudaGraphTest, NothingStartsBeforeAllIsCaptured) {
  std::atomic<bool> ran = false;
  run([&] {
    stream().call([&] { ran = true; });
    side().call([] {});
    EXPECT_FALSE(ran);
  });
  stream().wait();
  EXPECT_TRUE(ran);
}

TEST_F(CudaGraphTest, TakesNewArgumentsAtEveryRun) {
  for (std::size_t i = 1; i <= 6; ++i) {
    const std::vector<float> values = all(static_cast<float>(i));
    run([&] {
      device().copy_in(array(2).data(), values.data(), kBytes, stream());
      add(i % 2, 2, stream());
    });
  }
  EXPECT_EQ(array(0).read(), all(1.0F + 2.0F + 4.0F + 6.0F));
  EXPECT_EQ(array(1).read(), all(1.0F + 1.0F + 3.0F + 5.0F));
}

TEST_F(CudaGraphTest, RunsOfOneShapeUpdateTheGraphTheyHave) {
  TESSERA_EMULATION_ONLY();
  Emulation emulation;
  const std::uint64_t before = emulation.calls("cudaGraphInstantiate");
  for (int i = 0; i < 3; ++i) {
    run([&] { two_streams(); });
  }
  EXPECT_EQ(emulation.calls("cudaGraphInstantiate"), before + 1);
  run([&] { add(0, 1, stream()); });
  EXPECT_EQ(emulation.calls("cudaGraphInstantiate"), before + 2);
}

TEST_F(CudaGraphTest, MayHaveAnotherShapeAtEveryRun) {
  run([&] { add(0, 1, stream()); });
  run([&] { two_streams(); });
  run([] {});
  run([&] { add(0, 1, side()); });
  EXPECT_EQ(array(0).read(), all(((1 + 1) + 1) * 2 + 1 + 1));
}

TEST_F(CudaGraphTest, RunsWhileTheLastRunIsUnderWay) {
  for (int i = 0; i < 20; ++i) {
    run([&] { add(0, 1, stream()); });
  }
  EXPECT_EQ(array(0).read(), all(21.0F));
}

TEST_F(CudaGraphTest, StartsAfterAllEarlierWorkOfItsStreams) {
  Gate gate{side()};
  add(0, 1, side());
  run([&] { add(0, 0, stream()); });
  gate.open();
  EXPECT_EQ(array(0).read(), all(4.0F));
}

TEST_F(CudaGraphTest, EndsBeforeLaterWorkOfItsStreams) {
  std::atomic<bool> open = false;
  run([&] {
    stream().call([&] { open.wait(false); });
    add(0, 1, stream());
  });
  add(0, 0, side());
  open = true;
  open.notify_all();
  side().wait();
  EXPECT_EQ(array(0).read(), all(4.0F));
}

TEST_F(CudaGraphTest, AnIdleStreamStillWaitsForTheGraphsEnd) {
  std::atomic<bool> ran = false;
  run([&] { stream().call([&] { ran = true; }); });
  side().wait();
  EXPECT_TRUE(ran);
}

TEST_F(CudaGraphTest, EarlierEventsAreSatisfiedInside) {
  side().record(event(0));
  run([&] {
    stream().wait_for(event(0));
    stream().wait_for(event(1));  // never recorded
    add(0, 1, stream());
    event(0).wait();  // the host may wait for an event outside the graph
  });
  EXPECT_EQ(array(0).read(), all(2.0F));
}

TEST_F(CudaGraphTest, EventsFromInsideCanBeAwaitedAfterwards) {
  std::atomic<bool> open = false;
  std::atomic<bool> ran = false;
  run([&] {
    side().call([&] {
      open.wait(false);
      ran = true;
    });
    add(0, 1, side());
    side().record(event(0));
  });
  const OwnedStream other = device().make_side_stream("of no graph");
  other.get().wait_for(event(0));
  add(0, 0, other.get());
  open = true;
  open.notify_all();
  event(0).wait();
  EXPECT_TRUE(ran);
  other.get().wait();
  EXPECT_EQ(array(0).read(), all(4.0F));
}

TEST_F(CudaGraphTest, EventsFromInsideCanBeAwaitedInTheNextGraph) {
  run([&] {
    add(0, 1, side());
    side().record(event(0));
  });
  run([&] {
    stream().wait_for(event(0));
    add(0, 0, stream());
    stream().record(event(0));  // recorded a second time
    side().wait_for(event(0));
    add(0, 1, side());
  });
  EXPECT_EQ(array(0).read(), all(5.0F));
  stream().record(event(0));
  event(0).wait();
}

// Lets the host read a step's results while the next step runs.
TEST_F(CudaGraphTest, AnEventOfAGraphIsReachedBeforeLaterGraphsEnd) {
  std::atomic<bool> open = false;
  std::atomic<bool> ran = false;
  run([&] {
    stream().call([&] { ran = true; });
    stream().record(event(0));
  });
  run([&] {
    stream().call([&] { open.wait(false); });
    stream().record(event(1));
  });
  event(0).wait();
  EXPECT_TRUE(ran);
  open = true;
  open.notify_all();
  event(1).wait();
}

TEST_F(CudaGraphTest, EventsOfOldGraphsAreReached) {
  for (int i = 0; i < 19; ++i) {
    run([&] {
      add(0, 1, stream());
      if (i % 9 == 0) { side().record(event(static_cast<std::size_t>(i) / 9)); }
    });
  }
  for (std::size_t i = 0; i < 3; ++i) {
    event(i).wait();
    side().wait_for(event(i));
  }
  add(0, 0, side());
  side().wait();  // read() is on the other stream
  EXPECT_EQ(array(0).read(), all(40.0F));
}

TEST_F(CudaGraphTest, SmallArraysOfTheNextGraphDoNotWaitForTheEndOfTheLast) {
  DeviceArray<int> numbers{bench(), 20};
  std::atomic<bool> open = false;
  for (int runs = 0; runs < 2; ++runs) {
    run([&] {
      stream().call([&] { open.wait(false); });
      for (int i = 0; i < 20; ++i) {
        const int number = 100 * runs + i;
        device().copy_in(numbers.data() + i, &number, sizeof number, stream());
      }
    });
  }
  open = true;
  open.notify_all();
  EXPECT_EQ(numbers.read().back(), 119);
}

TEST_F(CudaGraphTest, AnExceptionOfTheBodyIsRethrownAndNothingRuns) {
  const auto witness = std::make_shared<int>(0);
  for (int i = 0; i < 2; ++i) {
    EXPECT_THROW(run([&] {
                   two_streams();
                   stream().call([witness] { ++*witness; });
                   throw std::out_of_range{"of the body"};
                 }),
                 std::out_of_range);
  }
  EXPECT_EQ(witness.use_count(), 1) << "what was to be called is kept for ever";
  EXPECT_EQ(array(0).read(), all(1.0F));
  EXPECT_EQ(*witness, 0);
  event(0).wait();  // its work was never launched
  stream().wait_for(event(1));
  expect_usable();
}

TEST_F(CudaGraphTest, WaitsOfTheHostInsideAreRefused) {
  std::vector<float> host(kElems);
  const std::vector<std::function<void()>> waits = {
      [&] { stream().wait(); },
      [&] { side().wait(); },
      [&] {
        stream().record(event(0));
        event(0).wait();
      },
      [&] { device().copy_out(host.data(), array(0).data(), kBytes, stream()); },
  };
  for (const auto& wait : waits) {
    EXPECT_THROW(run([&] {
                   add(0, 1, stream());
                   wait();
                 }),
                 ContractError);
    EXPECT_EQ(array(0).read(), all(1.0F));
  }
  expect_usable();
}

TEST_F(CudaGraphTest, AGraphWithinAGraphIsRefused) {
  const std::unique_ptr<WorkGraph> inner = device().make_graph();
  EXPECT_THROW(run([&] { inner->run(stream(), {}, [] {}); }), ContractError);
  expect_usable();
}

TEST_F(CudaGraphTest, TwoGraphsTakeTurns) {
  const std::unique_ptr<WorkGraph> other = device().make_graph();
  for (int i = 0; i < 3; ++i) {
    run([&] { add(0, 1, stream()); });
    other->run(side(), {stream()}, [&] {
      add(0, 0, side());
      side().record(event(2));
    });
    event(2).wait();
  }
  EXPECT_EQ(array(0).read(), all(22.0F));
}

TEST_F(CudaGraphTest, CallsRunOnceARun) {
  std::atomic<int> calls = 0;
  for (int i = 0; i < 5; ++i) {
    run([&] {
      stream().call([&] { ++calls; });
      side().call([&] { ++calls; });
    });
  }
  stream().wait();
  EXPECT_EQ(calls, 10);
}

TEST_F(CudaGraphTest, ChecksInsideAreEvaluatedAfterwards) {
  run([&] { device().check_filled(array(0).data(), 0x3F, 1, "a fault within", side()); });
  try {
    side().wait();
    ADD_FAILURE() << "the check has passed";
  } catch (const ContractError& error) { EXPECT_STREQ(error.what(), "a fault within"); }
}

// Within a graph nothing can wait to evaluate some of the checks early.
TEST_F(CudaGraphTest, TakesAnyNumberOfChecks) {
  for (const int bad : {-1, 5000}) {
    run([&] {
      for (int i = 0; i < 9000; ++i) {
        device().check_filled(array(0).data(), i == bad ? 0x3F : 0xFF, i == bad ? 1 : 0, "fault",
                              side());
      }
    });
    if (bad < 0) {
      side().wait();
    } else {
      EXPECT_THROW(side().wait(), ContractError);
    }
  }
}

TEST_F(CudaGraphTest, TakesMoreSmallArraysThanAreStagedAtOnce) {
  constexpr int kArrays = 50;
  DeviceArray<int> numbers{bench(), kArrays};
  for (int runs = 0; runs < 3; ++runs) {
    run([&] {
      for (int i = 0; i < kArrays; ++i) {
        const int number = 100 * runs + i;
        device().copy_in(numbers.data() + i, &number, sizeof number,
                         i % 3 == 0 ? side() : stream());
      }
    });
    const std::vector<int> got = numbers.read();
    for (int i = 0; i < kArrays; ++i) {
      EXPECT_EQ(got[static_cast<std::size_t>(i)], 100 * runs + i);
    }
  }
}

TEST_F(CudaGraphTest, AfterAnyFailedCallOfCudaEverythingStaysUsable) {
  TESSERA_EMULATION_ONLY();
  for (const char* call :
       {"cudaStreamBeginCapture", "cudaStreamEndCapture", "cudaGraphLaunch", "cudaGraphInstantiate",
        "cudaStreamWaitEvent", "cudaEventRecord", "cudaMemcpyAsync"}) {
    Emulation emulation;
    int nth = 1;
    for (bool failed = true; failed; ++nth) {
      run([&] { add(3, 1, stream()); });  // another shape, so the next graph is instantiated
      emulation.fail(call, nth, Emulation::kInvalidValue);
      try {
        run([&] { two_streams(); });
        failed = false;
      } catch (const DeviceError&) {  // NOLINT(bugprone-empty-catch): the n-th call has failed
      }
      side().wait();
    }
    EXPECT_GE(nth, 3) << call << " has not failed";
  }
  array(0).write(all(1.0F));
  run([&] { two_streams(); });
  EXPECT_EQ(array(0).read(), all(5.0F));
}

TEST_F(CudaGraphTest, EventsOfAnotherDevicesStreamsAreRefusedInside) {
  CudaBench other;
  const OwnedEvent elsewhere = other.device().make_event();
  other.stream().record(elsewhere.get());
  EXPECT_THROW(run([&] { stream().wait_for(elsewhere.get()); }), ContractError);
  stream().wait_for(elsewhere.get());
  expect_usable();
}

TEST_F(CudaGraphTest, TimedEventsAreRefusedInsideAndTimeItFromOutside) {
  const OwnedEvent begin = device().make_timed_event();
  const OwnedEvent end = device().make_timed_event();
  EXPECT_THROW(run([&] { stream().record(begin.get()); }), ContractError);
  stream().record(begin.get());
  run([&] { stream().call([] { std::this_thread::sleep_for(std::chrono::milliseconds{50}); }); });
  stream().record(end.get());
  end.get().wait();
  EXPECT_GE(end.get().seconds_since(begin.get()), 0.05);
  expect_usable();
}

TEST_F(CudaGraphTest, GraphsOfTwoDevicesWaitForEachOther) {
  CudaBench other;
  const OwnedEvent elsewhere = other.device().make_event();
  const std::unique_ptr<WorkGraph> theirs = other.device().make_graph();
  std::atomic<bool> open = false;
  theirs->run(other.stream(), {}, [&] {
    other.stream().call([&] { open.wait(false); });
    add(0, 1, other.stream());
    other.stream().record(elsewhere.get());
  });
  stream().wait_for(elsewhere.get());
  run([&] { add(0, 0, stream()); });
  open = true;
  open.notify_all();
  EXPECT_EQ(array(0).read(), all(4.0F));
}

}  // namespace
}  // namespace tessera::test::graph_test
