#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

#include "device/cuda/cuda_check.hpp"

// How kernels are launched, and how their threads find their elements.
namespace tessera::cuda {

/// Blocks and threads of a launch, along x alone unless said. No blocks: nothing is launched.
struct Grid {
  unsigned blocks = 1;
  unsigned threads = 256;
  unsigned blocks_y = 1;
};

inline constexpr unsigned kBlockThreads = 256;
// Eight blocks of 256 threads fill a multiprocessor of 2,048; some hundred multiprocessors are the
// most that a device has. Kernels stride over the rest.
inline constexpr std::int64_t kMostBlocks = 8 * 160;

/// For a grid-stride loop over `items`.
[[nodiscard]] inline Grid grid_for(std::int64_t items, unsigned threads = kBlockThreads) noexcept {
  const std::int64_t blocks = (items + threads - 1) / threads;
  return {static_cast<unsigned>(std::min(blocks, kMostBlocks)), threads};
}

/// Launches `kernel` on `stream`, whose device is the calling thread's, and checks that it could be
/// launched. An empty grid launches nothing.
template <class... Params, class... Args>
void launch(void (*kernel)(Params...), const Grid& grid, cudaStream_t stream, Args&&... args) {
  if (grid.blocks == 0 || grid.blocks_y == 0) { return; }
  cudaLaunchConfig_t config{};
  config.gridDim = dim3{grid.blocks, grid.blocks_y, 1};
  config.blockDim = dim3{grid.threads, 1, 1};
  config.stream = stream;
  check(cudaLaunchKernelEx(&config, kernel, static_cast<Params>(args)...), "kernel launch");
}

/// The first element of the calling thread in a loop over all, and how far it is to the next.
__device__ inline std::int64_t first_index() {
  return static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ inline std::int64_t index_stride() {
  return static_cast<std::int64_t>(gridDim.x) * blockDim.x;
}

}  // namespace tessera::cuda
