// Streams, events and captures follow CUDA's rules.
#include <array>
#include <atomic>
#include <thread>
#include <utility>

#include "emulated_cuda/stream_task.hpp"
#include "emulated_cuda/test_support.hpp"

namespace emulated_cuda::test::capture_test {
namespace {

class TestEvent {
 public:
  explicit TestEvent(unsigned flags = cudaEventDisableTiming) {
    check(cudaEventCreateWithFlags(&event_, flags), "cudaEventCreateWithFlags");
  }
  ~TestEvent() { (void)cudaEventDestroy(event_); }
  TestEvent(const TestEvent&) = delete;
  TestEvent& operator=(const TestEvent&) = delete;
  operator cudaEvent_t() const noexcept { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

/// Tasks record their numbers here.
struct Log {
  std::atomic<int> next = 0;
  std::array<std::atomic<int>, 8> at{};
};

class EmulatedCapture : public ::testing::Test {
 protected:
  void TearDown() override {
    (void)cudaGraphDestroy(graph_);
    (void)cudaGraphExecDestroy(exec_);
  }

  void begin() { check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeRelaxed), "begin"); }
  cudaError_t end() {
    (void)cudaGraphDestroy(graph_);
    return cudaStreamEndCapture(stream_, &graph_);
  }
  void note(const TestStream& stream, std::size_t what) {
    check(enqueue_library_call(stream, "a note", [this, what] { log_.at[what] = ++log_.next; }),
          "enqueue_library_call");
  }
  void pass(const TestStream& from, const TestStream& to) {
    check(cudaEventRecord(event_, from), "cudaEventRecord");
    check(cudaStreamWaitEvent(to, event_, 0), "cudaStreamWaitEvent");
  }
  void run() {
    if (exec_ == nullptr) { check(cudaGraphInstantiate(&exec_, graph_, 0), "instantiate"); }
    check(cudaGraphLaunch(exec_, stream_), "cudaGraphLaunch");
    stream_.wait();
  }
  /// Captures task 0, then 1 on other_ in parallel with 2 on stream_, and the join.
  void capture_fork() {
    begin();
    note(stream_, 0);
    pass(stream_, other_);
    note(other_, 1);
    note(stream_, 2);
    pass(other_, stream_);
    note(stream_, 3);
    ASSERT_EQ(end(), cudaSuccess);
  }

  TestStream stream_;
  TestStream other_;
  TestStream third_;
  TestEvent event_;
  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t exec_ = nullptr;
  Log log_;
};

TEST_F(EmulatedCapture, AGraphRunsAtItsLaunchAndInItsOrder) {
  for (int i = 0; i < 20; ++i) {
    log_.next = 0;
    capture_fork();
    EXPECT_EQ(log_.next, 0);
    emulated_cuda_set_delay_us(300);
    run();
    emulated_cuda_set_delay_us(0);
    EXPECT_EQ(log_.at[0], 1);
    EXPECT_GT(log_.at[1], 1);
    EXPECT_GT(log_.at[2], 1);
    EXPECT_EQ(log_.at[3], 4);
    ASSERT_EQ(cudaGraphExecDestroy(std::exchange(exec_, nullptr)), cudaSuccess);
  }
}

TEST_F(EmulatedCapture, BranchesRunBesideEachOther) {
  std::atomic<int> met = 0;
  const auto meet = [&met] {
    ++met;
    while (met < 2) { std::this_thread::yield(); }
  };
  begin();
  pass(stream_, other_);
  check(enqueue_library_call(stream_, "meets", meet), "enqueue");
  check(enqueue_library_call(other_, "meets", meet), "enqueue");
  pass(other_, stream_);
  ASSERT_EQ(end(), cudaSuccess);
  run();
  EXPECT_EQ(met, 2);
}

TEST_F(EmulatedCapture, AStreamThatWasNotJoinedAgainIsRefused) {
  begin();
  pass(stream_, other_);
  note(other_, 1);
  EXPECT_EQ(end(), cudaErrorStreamCaptureUnjoined);
  begin();  // neither stream is in a capture any more
  note(stream_, 0);
  ASSERT_EQ(end(), cudaSuccess);
  other_.wait();
}

TEST_F(EmulatedCapture, WorkFromOutsideIsRefused) {
  check(cudaEventRecord(event_, other_), "cudaEventRecord");
  begin();
  EXPECT_EQ(cudaStreamWaitEvent(stream_, event_, 0), cudaErrorStreamCaptureIsolation);
  EXPECT_EQ(end(), cudaErrorStreamCaptureInvalidated);
  stream_.wait();
}

TEST_F(EmulatedCapture, TwoCapturesAreNotMerged) {
  begin();
  check(cudaStreamBeginCapture(other_, cudaStreamCaptureModeRelaxed), "begin");
  check(cudaEventRecord(event_, other_), "cudaEventRecord");
  EXPECT_EQ(cudaStreamWaitEvent(stream_, event_, 0), cudaErrorStreamCaptureMerge);
  EXPECT_EQ(end(), cudaErrorStreamCaptureInvalidated);
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(other_, &graph), cudaErrorStreamCaptureInvalidated);
}

TEST_F(EmulatedCapture, TheHostCannotWaitInside) {
  begin();
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(end(), cudaErrorStreamCaptureInvalidated);
  begin();
  check(cudaEventRecord(event_, stream_), "cudaEventRecord");
  EXPECT_EQ(cudaEventSynchronize(event_), cudaErrorCapturedEvent);
  EXPECT_EQ(end(), cudaErrorStreamCaptureInvalidated);
  EXPECT_EQ(cudaStreamWaitEvent(other_, event_, 0), cudaErrorCapturedEvent);
  check(cudaEventRecord(event_, stream_), "cudaEventRecord");  // outside the capture
  EXPECT_EQ(cudaEventSynchronize(event_), cudaSuccess);
}

TEST_F(EmulatedCapture, EndsOnlyOnTheStreamWhereItBegan) {
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(stream_, &graph), cudaErrorIllegalState);
  begin();
  EXPECT_EQ(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeRelaxed), cudaErrorIllegalState);
  pass(stream_, other_);
  EXPECT_EQ(cudaStreamEndCapture(other_, &graph), cudaErrorStreamCaptureUnmatched);
  EXPECT_EQ(end(), cudaErrorStreamCaptureInvalidated);
}

TEST_F(EmulatedCapture, AnUpdateTakesTheSameShapeOnly) {
  capture_fork();
  run();
  capture_fork();
  cudaGraphExecUpdateResultInfo info{};
  EXPECT_EQ(cudaGraphExecUpdate(exec_, graph_, &info), cudaSuccess);
  begin();
  note(stream_, 0);
  ASSERT_EQ(end(), cudaSuccess);
  EXPECT_EQ(cudaGraphExecUpdate(exec_, graph_, &info), cudaErrorGraphExecUpdateFailure);
  EXPECT_EQ(info.result, cudaGraphExecUpdateErrorTopologyChanged);
  log_.next = 0;
  run();  // the unchanged graph
  EXPECT_EQ(log_.next, 4);
}

TEST_F(EmulatedCapture, OtherStreamsRunDuringACapture) {
  begin();
  note(third_, 5);
  third_.wait();
  EXPECT_EQ(log_.next, 1);
  cudaStreamCaptureStatus status{};
  EXPECT_EQ(cudaStreamIsCapturing(stream_, &status), cudaSuccess);
  EXPECT_EQ(status, cudaStreamCaptureStatusActive);
  EXPECT_EQ(cudaStreamIsCapturing(third_, &status), cudaSuccess);
  EXPECT_EQ(status, cudaStreamCaptureStatusNone);
  ASSERT_EQ(end(), cudaSuccess);
}

TEST_F(EmulatedCapture, EventsMeasureTime) {
  const TestEvent from{cudaEventDefault};
  const TestEvent to{cudaEventDefault};
  float milliseconds = -1.0F;
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, from, to), cudaErrorInvalidResourceHandle);
  check(cudaEventRecord(from, stream_), "cudaEventRecord");
  note(stream_, 0);
  check(cudaEventRecord(to, stream_), "cudaEventRecord");
  check(cudaEventSynchronize(to), "cudaEventSynchronize");
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, from, to), cudaSuccess);
  EXPECT_GE(milliseconds, 0.0F);
}

TEST_F(EmulatedCapture, InjectedFailuresHappenOnceOrPersist) {
  emulated_cuda_fail("cudaEventRecord", 2, cudaErrorInvalidValue);
  EXPECT_EQ(cudaEventRecord(event_, stream_), cudaSuccess);
  EXPECT_EQ(cudaEventRecord(event_, stream_), cudaErrorInvalidValue);
  EXPECT_EQ(cudaEventRecord(event_, stream_), cudaSuccess);
  emulated_cuda_fail("cudaEventRecord", 1, cudaErrorIllegalAddress);
  EXPECT_EQ(cudaEventRecord(event_, stream_), cudaErrorIllegalAddress);
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaErrorIllegalAddress);
  emulated_cuda_mend();
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  EXPECT_STREQ(cudaGetErrorName(cudaErrorIllegalAddress), "cudaErrorIllegalAddress");
}

}  // namespace
}  // namespace emulated_cuda::test::capture_test
