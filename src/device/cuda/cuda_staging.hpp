#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "device/cuda/cuda_stream.hpp"

namespace tessera::cuda {

/// Pinned memory through which small host arrays (tokens, scalars) go to the device: the caller's
/// array is free on return, and neither the host nor the stream waits: where the next piece is
/// still on its way there is one more, up to kMostPieces. Within a graph none can have arrived:
/// there are as many pieces as the graph needs.
class StagingRing {
 public:
  static constexpr std::size_t kPieceBytes = std::size_t{256} << 10;
  static constexpr std::size_t kPieces = 8;
  /// That the host makes before it waits for the device, which is far behind it then.
  static constexpr std::size_t kMostPieces = 64;
  /// What goes through the ring at most: more would push earlier arrays out.
  static constexpr std::size_t kMostBytes = kPieceBytes * kPieces / 2;

  explicit StagingRing(std::shared_ptr<CaptureState> capture);

  void copy_in(void* to, const void* from_host, std::size_t bytes, Stream stream);

 private:
  struct FreeHost {
    void operator()(std::byte* memory) const noexcept { (void)cudaFreeHost(memory); }
  };
  struct Piece {
    std::unique_ptr<std::byte, FreeHost> memory;
    std::unique_ptr<CudaEvent> free;  // reached when the piece has been read
  };

  [[nodiscard]] Piece make_piece() const;
  /// One that has been read.
  [[nodiscard]] Piece& next_piece();

  std::shared_ptr<CaptureState> capture_;
  std::vector<Piece> pieces_;
  std::size_t next_ = 0;
};

}  // namespace tessera::cuda
