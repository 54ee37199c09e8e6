#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "device/cuda/cuda_check.hpp"

// How kernels are launched, and how their threads find their elements.
namespace tessera::cuda {

/// Blocks and threads of a launch, along x unless stated. With no blocks nothing is launched.
struct Grid {
  unsigned blocks = 1;
  unsigned threads = 256;
  unsigned blocks_y = 1;
  /// Whether the blocks along x stride over the work, whatever their number: then no more are
  /// launched than the device holds at once. One more would be a second round, in which most
  /// multiprocessors are idle.
  bool strides = false;
  /// Bytes of each block's dynamic_shared(), besides the arrays that the kernel declares.
  unsigned shared_bytes = 0;
};

/// The limit without a special request, for dynamic_shared() and declared arrays together.
inline constexpr unsigned kSharedBytes = 48U << 10U;

inline constexpr unsigned kBlockThreads = 256;
inline constexpr std::int64_t kMostBlocks = 0x7FFFFFFF;  // blocks of a launch

/// The grid of a grid-stride loop over `items`.
[[nodiscard]] inline Grid grid_for(std::int64_t items, unsigned threads = kBlockThreads) noexcept {
  const std::int64_t blocks = (items + threads - 1) / threads;
  return {.blocks = static_cast<unsigned>(std::min(blocks, kMostBlocks)),
          .threads = threads,
          .strides = true};
}

/// The most shared memory that a block may request on the calling thread's device.
[[nodiscard]] inline unsigned most_shared_bytes() {
  int device = 0;
  int bytes = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  check(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
        "cudaDeviceGetAttribute");
  return static_cast<unsigned>(bytes);
}

/// The number of blocks of this many threads that the calling thread's device runs at once, for a
/// kernel.
template <class... Params>
[[nodiscard]] std::int64_t resident_blocks(void (*kernel)(Params...), unsigned threads,
                                           unsigned shared_bytes = 0) {
  int device = 0;
  int multiprocessors = 0;
  int blocks = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  check(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device),
        "cudaDeviceGetAttribute");
  check(
      cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, reinterpret_cast<const void*>(kernel),
                                                    static_cast<int>(threads), shared_bytes),
      "cudaOccupancyMaxActiveBlocksPerMultiprocessor");
  return std::int64_t{multiprocessors} * std::max(blocks, 1);
}

/// Blocks of `grid` along x.
template <class... Params>
[[nodiscard]] unsigned blocks_to_launch(void (*kernel)(Params...), const Grid& grid) {
  constexpr unsigned few = 64;  // a number that every device holds
  if (!grid.strides || grid.blocks <= few) { return grid.blocks; }
  const std::int64_t most = resident_blocks(kernel, grid.threads, grid.shared_bytes);
  const std::int64_t across = std::max<std::int64_t>(most / grid.blocks_y, 1);
  return static_cast<unsigned>(std::min<std::int64_t>(grid.blocks, across));
}

/// Bytes of the arrays in shared memory that `kernel` and the functions that it calls declare.
template <class... Params>
[[nodiscard]] std::size_t declared_shared_bytes(void (*kernel)(Params...)) {
  cudaFuncAttributes attributes{};
  check(cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(kernel)),
        "cudaFuncGetAttributes");
  return attributes.sharedSizeBytes;
}

/// Allows blocks of `kernel` so many bytes of dynamic_shared(), and as many blocks at once as fit.
template <class... Params>
void ask_for_shared_bytes(void (*kernel)(Params...), unsigned bytes) {
  const auto* const function = reinterpret_cast<const void*>(kernel);
  check(cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(bytes)),
        "cudaFuncSetAttribute");
  check(cudaFuncSetAttribute(function, cudaFuncAttributePreferredSharedMemoryCarveout,
                             cudaSharedmemCarveoutMaxShared),
        "cudaFuncSetAttribute");
}

/// Launches `kernel` on `stream`, whose device is the calling thread's, and checks that it could be
/// launched. An empty grid launches nothing.
template <class... Params, class... Args>
void launch(void (*kernel)(Params...), const Grid& grid, cudaStream_t stream, Args&&... args) {
  if (grid.blocks == 0 || grid.blocks_y == 0) { return; }
  if (grid.shared_bytes > 0 && grid.shared_bytes + declared_shared_bytes(kernel) > kSharedBytes) {
    ask_for_shared_bytes(kernel, grid.shared_bytes);
  }
  cudaLaunchConfig_t config{};
  config.gridDim = dim3{blocks_to_launch(kernel, grid), grid.blocks_y, 1};
  config.blockDim = dim3{grid.threads, 1, 1};
  config.dynamicSmemBytes = grid.shared_bytes;
  config.stream = stream;
  check(cudaLaunchKernelEx(&config, kernel, static_cast<Params>(args)...), "kernel launch");
}

/// The calling thread's first element in a loop over all, and the distance to its next.
__device__ inline std::int64_t first_index() {
  return static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ inline std::int64_t index_stride() {
  return static_cast<std::int64_t>(gridDim.x) * blockDim.x;
}

}  // namespace tessera::cuda
