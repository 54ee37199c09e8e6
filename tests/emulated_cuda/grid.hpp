#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <functional>

namespace emulated_cuda {

/// Runs `body` for every thread of a grid, block after block, on the calling thread. In which order
/// the blocks run, and a block's threads between two barriers, follows from `draw`: onward,
/// backward, or shuffled. Ends the process on misuse of barriers and calls of warps.
void run_grid(const dim3& grid, const dim3& block, std::size_t shared_bytes,
              const std::function<void()>& body, const void* kernel, std::uint64_t draw);

}  // namespace emulated_cuda
