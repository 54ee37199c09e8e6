#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "kernels/backend.hpp"

// CUDA-only tests run against the module that TESSERA_CUDA_MODULE names.
namespace tessera::test {

/// A CUDA device and a compute stream with a workspace, as a rank has them.
class CudaBench : public DeviceBench {
 public:
  explicit CudaBench(const CudaDeviceOptions& options = {})
      : DeviceBench{make_cuda_device(options)} {}
};

/// Base of the fixtures. Skips without CUDA.
class CudaTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string reason = no_cuda(); !reason.empty()) { GTEST_SKIP() << reason; }
    bench_ = std::make_unique<CudaBench>();
  }

  [[nodiscard]] CudaBench& bench() { return *bench_; }
  [[nodiscard]] Device& device() { return bench_->device(); }
  [[nodiscard]] Stream stream() { return bench_->stream(); }
  [[nodiscard]] static const kernels::Table& table() { return kernels::table_of(DeviceKind::cuda); }

 private:
  std::unique_ptr<CudaBench> bench_;
};

}  // namespace tessera::test
