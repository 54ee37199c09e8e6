#pragma once

#include <array>
#include <cstddef>
#include <memory>

#include "device/cuda/cuda_stream.hpp"

namespace tessera::cuda {

/// Pinned memory through which small host arrays (tokens, scalars) go to the device: the caller's
/// array is free on return, and neither the host nor the stream waits, unless all pieces are still
/// on their way.
class StagingRing {
 public:
  static constexpr std::size_t kPieceBytes = std::size_t{256} << 10;
  static constexpr std::size_t kPieces = 8;
  /// What goes through the ring at most: more would push earlier arrays out.
  static constexpr std::size_t kMostBytes = kPieceBytes * kPieces / 2;

  explicit StagingRing(std::shared_ptr<CaptureState> capture);
  ~StagingRing();
  StagingRing(const StagingRing&) = delete;
  StagingRing& operator=(const StagingRing&) = delete;

  void copy_in(void* to, const void* from_host, std::size_t bytes, Stream stream);

 private:
  std::shared_ptr<CaptureState> capture_;
  std::byte* memory_ = nullptr;
  std::array<std::unique_ptr<CudaEvent>, kPieces> free_;  // reached when the piece has been read
  std::size_t next_ = 0;
};

}  // namespace tessera::cuda
