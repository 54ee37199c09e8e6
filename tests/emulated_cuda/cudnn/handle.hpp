#pragma once

#include <cudnn_frontend.h>

#include <cstddef>
#include <string>

namespace emulated_cuda {

/// Settings of the double of cuDNN, changed by tests.
struct CudnnSettings {
  std::size_t version = 91501;
  std::size_t more_workspace_bytes = 0;  ///< per head, beyond the expected size
};
[[nodiscard]] CudnnSettings& cudnn_settings();

/// Takes memory of the calling thread's device until the process ends, as loaded code does.
[[nodiscard]] bool load_code(std::size_t bytes);

inline constexpr std::size_t kMiB = std::size_t{1} << 20U;

}  // namespace emulated_cuda

struct CudnnHandle {
  cudaStream_t stream = nullptr;
};
