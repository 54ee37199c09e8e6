#include "device/cuda/cuda_fill_check.hpp"
#include "device/cuda/cuda_launch.cuh"

namespace tessera::cuda {
namespace {

__global__ void fill_check(const unsigned char* data, unsigned char value, std::int64_t bytes,
                           std::uint32_t* failed) {
  for (std::int64_t i = first_index(); i < bytes; i += index_stride()) {
    if (data[i] != value) { *failed = 1; }
  }
}

}  // namespace

void launch_fill_check(const unsigned char* data, unsigned char value, std::size_t bytes,
                       std::uint32_t* failed, cudaStream_t stream) {
  const auto count = static_cast<std::int64_t>(bytes);
  launch(fill_check, grid_for(count), stream, data, value, count, failed);
}

}  // namespace tessera::cuda
