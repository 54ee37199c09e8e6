#include <utility>

#include "device/cuda/cuda_flags.hpp"
#include "device/cuda/cuda_launch.cuh"

namespace tessera::cuda {
namespace {

// Several threads may write the flag. Volatile accesses are atomic ones on a GPU.
__global__ void fill_check(const unsigned char* data, unsigned char value, std::int64_t bytes,
                           volatile std::uint32_t* failed) {
  for (std::int64_t i = first_index(); i < bytes; i += index_stride()) {
    if (data[i] != value) { *failed = 1; }
  }
}

__global__ void raise(std::uint32_t* flag) {
  *static_cast<volatile std::uint32_t*>(flag) = 1;
}

}  // namespace

PinnedFlags::PinnedFlags(std::size_t count) {
  void* memory = nullptr;
  check(cudaMallocHost(&memory, count * sizeof(std::uint32_t)), "cudaMallocHost");
  words_ = static_cast<std::uint32_t*>(memory);
}

PinnedFlags::PinnedFlags(PinnedFlags&& other) noexcept
    : words_{std::exchange(other.words_, nullptr)} {}

PinnedFlags::~PinnedFlags() {
  if (words_ != nullptr) { (void)cudaFreeHost(words_); }
}

void launch_raise(std::uint32_t* flag, cudaStream_t stream) {
  launch(raise, Grid{1, 1}, stream, flag);
}

void launch_fill_check(const unsigned char* data, unsigned char value, std::size_t bytes,
                       std::uint32_t* failed, cudaStream_t stream) {
  const auto count = static_cast<std::int64_t>(bytes);
  launch(fill_check, grid_for(count), stream, data, value, count, failed);
}

}  // namespace tessera::cuda
