#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <functional>

namespace emulated_cuda {

/// Runs `body` for every thread of a grid, block after block, on the calling thread. `draw`
/// determines the order of blocks, and of a block's threads between two barriers: forward, backward
/// or shuffled. Ends the process on misuse of barriers and warp calls.
void run_grid(const dim3& grid, const dim3& block, std::size_t shared_bytes,
              const std::function<void()>& body, const void* kernel, std::uint64_t draw);

}  // namespace emulated_cuda
