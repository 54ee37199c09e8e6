#include "kernels/support/cuda/cuda_sort.hpp"

#include <algorithm>
#include <vector>

#include "device/cuda/cuda_launch.cuh"
#include "device/cuda/cuda_stream.hpp"

namespace tessera::kernels::cuda {
namespace {

/// Sorts on one thread.
__global__ void sort_kernel(const std::int32_t* tokens, std::int64_t elems, std::int32_t* sorted,
                            std::int32_t* positions) {
  for (std::int64_t i = 0; i < elems; ++i) { positions[i] = static_cast<std::int32_t>(i); }
  std::stable_sort(positions, positions + elems,
                   [=](std::int32_t a, std::int32_t b) { return tokens[a] < tokens[b]; });
  for (std::int64_t i = 0; i < elems; ++i) { sorted[i] = tokens[positions[i]]; }
}

}  // namespace

SortedTokens sort_by_token(const std::int32_t* tokens, std::int64_t elems, WorkspaceCut& workspace,
                           Stream stream) {
  auto* const sorted = workspace.take<std::int32_t>(elems);
  auto* const positions = workspace.take<std::int32_t>(elems);
  tessera::cuda::launch(sort_kernel, {1, 1}, tessera::cuda::cuda_stream(stream).open(), tokens,
                        elems, sorted, positions);
  return {sorted, positions};
}

}  // namespace tessera::kernels::cuda
