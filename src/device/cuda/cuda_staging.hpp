#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "device/cuda/cuda_stream.hpp"

namespace tessera::cuda {

/// Pinned memory through which small host arrays (tokens, scalars) go to the device. The caller's
/// array is free on return, and neither host nor stream waits: if the next piece is still in
/// transit, another one is made, up to kMostPieces. During a capture no piece can arrive: there are
/// as many pieces as the graph needs.
class StagingRing {
 public:
  static constexpr std::size_t kPieceBytes = std::size_t{256} << 10;
  static constexpr std::size_t kPieces = 8;
  /// The most pieces before the host waits for the device, which is then far behind.
  static constexpr std::size_t kMostPieces = 64;
  /// The most bytes of one array: more would push earlier arrays out.
  static constexpr std::size_t kMostBytes = kPieceBytes * kPieces / 2;

  explicit StagingRing(std::shared_ptr<CaptureState> capture);

  void copy_in(void* to, const void* from_host, std::size_t bytes, Stream stream);

 private:
  struct FreeHost {
    void operator()(std::byte* memory) const noexcept { (void)cudaFreeHost(memory); }
  };
  struct Piece {
    std::unique_ptr<std::byte, FreeHost> memory;
    std::unique_ptr<CudaEvent> free;  // reached when the piece was read
  };

  [[nodiscard]] Piece make_piece() const;
  /// A piece that was read.
  [[nodiscard]] Piece& next_piece();

  std::shared_ptr<CaptureState> capture_;
  std::vector<Piece> pieces_;
  std::size_t next_ = 0;
};

}  // namespace tessera::cuda
