// cuStreamWaitValue32: a stream waits for a word in host memory.
#include <cudaTypedefs.h>

#include <atomic>
#include <thread>

#include "emulated_cuda/test_support.hpp"

namespace emulated_cuda::test::wait_value_test {
namespace {

PFN_cuStreamWaitValue32_v11070 wait_function() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found{};
#if CUDART_VERSION >= 12050
  check(cudaGetDriverEntryPointByVersion("cuStreamWaitValue32", &function, 12000, cudaEnableDefault,
                                         &found),
        "cudaGetDriverEntryPointByVersion");
#else
  check(cudaGetDriverEntryPoint("cuStreamWaitValue32", &function, cudaEnableDefault, &found),
        "cudaGetDriverEntryPoint");
#endif
  return reinterpret_cast<PFN_cuStreamWaitValue32_v11070>(function);
}

class EmulatedWaitValue : public ::testing::Test {
 protected:
  void SetUp() override {
    void* data = nullptr;
    check(cudaMallocHost(&data, sizeof(std::uint32_t)), "cudaMallocHost");
    word_ = static_cast<std::uint32_t*>(data);
    set(0);
  }
  void TearDown() override {
    stream_.wait();
    (void)cudaFreeHost(word_);
  }

  void set(std::uint32_t value) { std::atomic_ref{*word_}.store(value); }
  [[nodiscard]] static CUdeviceptr address(const void* data) {
    return reinterpret_cast<CUdeviceptr>(data);
  }
  CUresult wait_for(std::uint32_t value, unsigned flags = CU_STREAM_WAIT_VALUE_GEQ) {
    return wait_(stream_, address(word_), value, flags);
  }
  void call(void (*work)(void*), void* data) {
    check(cudaLaunchHostFunc(stream_, work, data), "cudaLaunchHostFunc");
  }
  [[nodiscard]] const TestStream& stream() const { return stream_; }
  [[nodiscard]] PFN_cuStreamWaitValue32_v11070 function() const { return wait_; }
  [[nodiscard]] const std::uint32_t* word() const { return word_; }

 private:
  TestStream stream_;
  PFN_cuStreamWaitValue32_v11070 wait_ = wait_function();
  std::uint32_t* word_ = nullptr;
};

TEST_F(EmulatedWaitValue, HoldsBackOnlyItsStream) {
  std::atomic<bool> ran = false;
  ASSERT_EQ(wait_for(2), CUDA_SUCCESS);
  call([](void* data) { *static_cast<std::atomic<bool>*>(data) = true; }, &ran);
  const TestStream other;
  other.wait();
  set(1);
  EXPECT_EQ(cudaStreamQuery(stream()), cudaErrorNotReady);
  EXPECT_FALSE(ran);
  set(2);
  stream().wait();
  EXPECT_TRUE(ran);
}

TEST_F(EmulatedWaitValue, PassesValuesBeyondTheTarget) {
  set(5);
  ASSERT_EQ(wait_for(5), CUDA_SUCCESS);
  ASSERT_EQ(wait_for(4), CUDA_SUCCESS);
  stream().wait();
}

TEST_F(EmulatedWaitValue, ComparesCyclically) {
  set(3);  // the word has wrapped around
  ASSERT_EQ(wait_for(0xFFFF'FFFEU), CUDA_SUCCESS);
  stream().wait();
  set(0xFFFF'FFFEU);
  ASSERT_EQ(wait_for(1), CUDA_SUCCESS);
  EXPECT_EQ(cudaStreamQuery(stream()), cudaErrorNotReady);
  set(1);
  stream().wait();
}

TEST_F(EmulatedWaitValue, RefusesWhatCudaRefuses) {
  std::uint32_t pageable = 0;
  EXPECT_EQ(function()(stream(), address(&pageable), 0, CU_STREAM_WAIT_VALUE_GEQ),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(function()(stream(), address(word()) + 1, 0, CU_STREAM_WAIT_VALUE_GEQ),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(wait_for(0, 77), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(function()(nullptr, address(word()), 0, CU_STREAM_WAIT_VALUE_GEQ),
            CUDA_ERROR_INVALID_HANDLE);
  check(cudaStreamBeginCapture(stream(), cudaStreamCaptureModeRelaxed), "cudaStreamBeginCapture");
  EXPECT_EQ(wait_for(0), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(stream(), &graph), cudaErrorStreamCaptureInvalidated);
}

}  // namespace
}  // namespace emulated_cuda::test::wait_value_test
