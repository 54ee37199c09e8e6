#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tessera {

/// The bytes of a tensor that one checksum covers, starting at the tensor's first byte.
inline constexpr std::uint64_t kChecksumBlock = std::uint64_t{16} << 20;

/// The checksums of one tensor's blocks, as far as they are known. A block's checksum is the sum,
/// modulo 2^64, of XXH3-64 over each *chunk* of `chunk_bytes` bytes (the last one may be shorter),
/// seeded with the chunk's number in the tensor. So ranks that hold parts of a block add their sums
/// in any order, and a missing, moved or changed part is detected.
///
/// A part begins at a chunk, and ends at one or at the tensor's end.
class TensorSums {
 public:
  /// `chunk_bytes` divides kChecksumBlock.
  TensorSums(std::uint64_t tensor_bytes, std::uint64_t chunk_bytes);

  /// Adds bytes [first, first + bytes.size()) of the tensor.
  void add(std::uint64_t first, std::span<const std::byte> bytes);
  /// Adds another rank's sum of block `block`.
  void add_sum(std::size_t block, std::uint64_t sum);
  /// Indexed by block.
  [[nodiscard]] const std::vector<std::uint64_t>& sums() const noexcept { return sums_; }

 private:
  std::uint64_t tensor_bytes_;
  std::uint64_t chunk_bytes_;
  std::vector<std::uint64_t> sums_;
};

}  // namespace tessera
