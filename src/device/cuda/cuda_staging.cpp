#include "device/cuda/cuda_staging.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "device/cuda/cuda_check.hpp"

namespace tessera::cuda {

StagingRing::StagingRing(std::shared_ptr<CaptureState> capture) : capture_{std::move(capture)} {}

StagingRing::Piece StagingRing::make_piece() const {
  void* memory = nullptr;
  check(cudaMallocHost(&memory, kPieceBytes), "cudaMallocHost");
  Piece piece;
  piece.memory.reset(static_cast<std::byte*>(memory));
  piece.free = std::make_unique<CudaEvent>(capture_);
  return piece;
}

StagingRing::Piece& StagingRing::next_piece() {
  while (pieces_.size() < kPieces) { pieces_.push_back(make_piece()); }
  next_ %= pieces_.size();
  CudaEvent& free = *pieces_[next_].free;
  if (free.is_captured() || !free.is_reached()) {
    if (free.is_captured() || pieces_.size() < kMostPieces) {
      pieces_.insert(pieces_.begin() + static_cast<std::ptrdiff_t>(next_), make_piece());
    } else {
      free.wait();
    }
  }
  return pieces_[next_++];
}

void StagingRing::copy_in(void* to, const void* from_host, std::size_t bytes, Stream stream) {
  for (std::size_t at = 0; at < bytes; at += kPieceBytes) {
    const std::size_t count = std::min(kPieceBytes, bytes - at);
    Piece& piece = next_piece();
    std::memcpy(piece.memory.get(), static_cast<const std::byte*>(from_host) + at, count);
    check(cudaMemcpyAsync(static_cast<std::byte*>(to) + at, piece.memory.get(), count,
                          cudaMemcpyHostToDevice, cuda_stream(stream).open()),
          "cudaMemcpyAsync");
    stream.record(Event{piece.free.get()});
  }
}

}  // namespace tessera::cuda
