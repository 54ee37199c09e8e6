#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>

#include "emulated_cuda/fiber.hpp"

namespace emulated_cuda {

/// Follows the threads of one grid. All calls are made on the host thread that runs the grid.
class GridObserver {
 public:
  GridObserver() = default;
  virtual ~GridObserver() = default;
  GridObserver(const GridObserver&) = delete;
  GridObserver& operator=(const GridObserver&) = delete;

  virtual void begin_block(uint3 block) = 0;
  /// `thread` of the block runs from now on, on this stack.
  virtual void run_thread(unsigned thread, const Context& stack) = 0;
  /// All threads of the block have reached a barrier.
  virtual void pass_barrier() = 0;
  /// The lanes in `mask` of a warp have reached __syncwarp.
  virtual void pass_warp_barrier(unsigned warp, unsigned mask) = 0;

  /// A lane of the running thread's warp reads memory in a call that the warp makes together.
  virtual void read(unsigned lane, const void* from, std::size_t bytes) = 0;
  /// The running thread begins an asynchronous copy of `bytes` to a target of `width` bytes, or has
  /// waited for it.
  virtual void begin_copy(void* to, std::size_t width, const void* from, std::size_t bytes) = 0;
  virtual void finish_copy(void* to, std::size_t width, const void* from, std::size_t bytes) = 0;
};

/// The observer of a grid that begins. A module has one definition: unobserved.cpp, which returns
/// null, or that of races/.
[[nodiscard]] std::unique_ptr<GridObserver> observe_grid(const dim3& grid, const dim3& block);

/// The observer of the grid whose thread calls this; null if nothing follows the grid.
[[nodiscard]] GridObserver* observer();

}  // namespace emulated_cuda
