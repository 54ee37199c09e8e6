#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <tuple>
#include <type_traits>
#include <utility>

namespace emulated_cuda {

/// Enqueues a grid; each of its threads calls `body`.
[[nodiscard]] cudaError_t launch_grid(const cudaLaunchConfig_t& config, const void* kernel,
                                      std::function<void()> body);

}  // namespace emulated_cuda

/// Like the toolkit's: copies the arguments at the launch, so they may change afterwards.
template <class... Params, class... Args>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Params...),
                               Args&&... args) {
  // A parameter that is __grid_constant__ is a reference here; nvcc takes no others.
  static_assert((std::is_trivially_copyable_v<std::remove_cvref_t<Params>> && ...),
                "CUDA copies parameters by bytes");
  // NOLINTNEXTLINE(bugprone-sizeof-expression): a parameter that is a pointer counts as one
  static_assert((std::size_t{0} + ... + sizeof(Params)) <= 32764,
                "what CUDA 12.1 and later take on sm_70");
  return emulated_cuda::launch_grid(
      *config, reinterpret_cast<const void*>(kernel),
      [kernel, params = std::tuple<std::remove_cvref_t<Params>...>{std::forward<Args>(args)...}] {
        std::apply(kernel, params);
      });
}
