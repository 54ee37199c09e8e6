#include <cub/device/device_radix_sort.cuh>

#include "device/cuda/cuda_launch.cuh"
#include "device/cuda/cuda_stream.hpp"
#include "kernels/support/cuda/cuda_sort.hpp"

namespace tessera::kernels::cuda {
namespace {

__global__ void count_up(std::int32_t* numbers, std::int64_t elems) {
  for (std::int64_t i = tessera::cuda::first_index(); i < elems;
       i += tessera::cuda::index_stride()) {
    numbers[i] = static_cast<std::int32_t>(i);
  }
}

}  // namespace

SortedTokens sort_by_token(const std::int32_t* tokens, std::int64_t elems, WorkspaceCut& workspace,
                           Stream stream) {
  const cudaStream_t handle = tessera::cuda::cuda_stream(stream).open();
  auto* const sorted = workspace.take<std::int32_t>(elems);
  auto* const positions = workspace.take<std::int32_t>(elems);
  auto* const numbers = workspace.take<std::int32_t>(elems);
  tessera::cuda::launch(count_up, tessera::cuda::grid_for(elems), handle, numbers, elems);

  constexpr int bits = 31;  // of a token, which is not negative
  const int count = static_cast<int>(elems);
  std::size_t bytes = 0;
  tessera::cuda::check(cub::DeviceRadixSort::SortPairs(nullptr, bytes, tokens, sorted, numbers,
                                                       positions, count, 0, bits, handle),
                       "cub::DeviceRadixSort::SortPairs");
  auto* const space = workspace.take<std::byte>(static_cast<std::int64_t>(bytes));
  tessera::cuda::check(cub::DeviceRadixSort::SortPairs(space, bytes, tokens, sorted, numbers,
                                                       positions, count, 0, bits, handle),
                       "cub::DeviceRadixSort::SortPairs");
  return {sorted, positions};
}

}  // namespace tessera::kernels::cuda
