#include "device/cuda/cuda_staging.hpp"

#include <algorithm>
#include <cstring>

#include "device/cuda/cuda_check.hpp"

namespace tessera::cuda {

StagingRing::StagingRing(std::shared_ptr<CaptureState> capture) : capture_{std::move(capture)} {}

StagingRing::~StagingRing() {
  if (memory_ != nullptr) { (void)cudaFreeHost(memory_); }
}

void StagingRing::copy_in(void* to, const void* from_host, std::size_t bytes, Stream stream) {
  if (memory_ == nullptr) {
    void* memory = nullptr;
    check(cudaMallocHost(&memory, kPieceBytes * kPieces), "cudaMallocHost");
    memory_ = static_cast<std::byte*>(memory);
    for (auto& event : free_) { event = std::make_unique<CudaEvent>(capture_); }
  }
  for (std::size_t at = 0; at < bytes; at += kPieceBytes) {
    const std::size_t count = std::min(kPieceBytes, bytes - at);
    std::byte* const piece = memory_ + next_ * kPieceBytes;
    free_[next_]->wait();
    std::memcpy(piece, static_cast<const std::byte*>(from_host) + at, count);
    check(cudaMemcpyAsync(static_cast<std::byte*>(to) + at, piece, count, cudaMemcpyHostToDevice,
                          cuda_stream(stream).open()),
          "cudaMemcpyAsync");
    stream.record(Event{free_[next_].get()});
    next_ = (next_ + 1) % kPieces;
  }
}

}  // namespace tessera::cuda
