#pragma once

#include <cudnn_frontend.h>

#include <cstddef>
#include <string>

namespace emulated_cuda {

/// What the double of cuDNN is, as tests have set it.
struct CudnnSettings {
  std::size_t version = 91501;
  std::size_t more_workspace_bytes = 0;  ///< per head, beyond the expected size
};
[[nodiscard]] CudnnSettings& cudnn_settings();

/// Takes memory of the calling thread's device until the process ends, as code that is loaded does.
[[nodiscard]] bool load_code(std::size_t bytes);

inline constexpr std::size_t kMiB = std::size_t{1} << 20U;

}  // namespace emulated_cuda

struct CudnnHandle {
  cudaStream_t stream = nullptr;
};
