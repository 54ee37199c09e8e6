#pragma once

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <vector>

#include "device/cuda/cuda_launch.cuh"
#include "emulated_cuda/controls.hpp"

namespace emulated_cuda::test {

using tessera::cuda::check;
using tessera::cuda::Grid;
using tessera::cuda::launch;

/// A stream of device 0 by default.
class TestStream {
 public:
  explicit TestStream(int device = 0) {
    check(cudaSetDevice(device), "cudaSetDevice");
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
    check(cudaSetDevice(0), "cudaSetDevice");
  }
  ~TestStream() { (void)cudaStreamDestroy(stream_); }
  TestStream(const TestStream&) = delete;
  TestStream& operator=(const TestStream&) = delete;

  operator cudaStream_t() const noexcept { return stream_; }
  void wait() const { check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize"); }

 private:
  cudaStream_t stream_ = nullptr;
};

/// Numbers on device 0.
template <class T>
class DeviceNumbers {
 public:
  explicit DeviceNumbers(std::size_t count) : count_{count} {
    void* data = nullptr;
    check(cudaMalloc(&data, count * sizeof(T)), "cudaMalloc");
    data_ = static_cast<T*>(data);
  }
  ~DeviceNumbers() { (void)cudaFree(data_); }
  DeviceNumbers(const DeviceNumbers&) = delete;
  DeviceNumbers& operator=(const DeviceNumbers&) = delete;

  [[nodiscard]] T* data() const noexcept { return data_; }
  [[nodiscard]] std::vector<T> read(const TestStream& stream) const {
    std::vector<T> values(count_);
    check(cudaMemcpyAsync(values.data(), data_, count_ * sizeof(T), cudaMemcpyDeviceToHost, stream),
          "cudaMemcpyAsync");
    stream.wait();
    return values;
  }

 private:
  std::size_t count_;
  T* data_ = nullptr;
};

}  // namespace emulated_cuda::test
