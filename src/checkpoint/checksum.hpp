#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::checkpoint {

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

/// The sums of blocks of several tensors, as far as this rank or all ranks have read or written
/// them.
class SumTable {
 public:
  /// Adds bytes from `first_byte` of tensor `tensor` on; `bytes_in_all` and `chunk_bytes` are those
  /// of TensorSums.
  void add(std::size_t tensor, std::uint64_t bytes_in_all, std::uint64_t chunk_bytes,
           std::uint64_t first_byte, std::span<const std::byte> bytes);
  /// Adds the sums of another table.
  void add(const SumTable& more);
  /// The sums as a text for other ranks: 16 bytes for a block.
  [[nodiscard]] std::string text() const;

 private:
  std::map<std::size_t, TensorSums> sums_;
};

/// A block's sum as exchanged between ranks.
struct BlockSum {
  std::uint32_t tensor = 0;
  std::uint32_t block = 0;
  std::uint64_t sum = 0;
};

/// Calls `visit(tensor, block, sum)` for each sum in a SumTable::text.
template <class Visit>
void for_each_sum(std::string_view text, const Visit& visit) {
  for (std::size_t at = 0; at + sizeof(BlockSum) <= text.size(); at += sizeof(BlockSum)) {
    BlockSum entry;
    text.copy(reinterpret_cast<char*>(&entry), sizeof entry, at);
    visit(std::size_t{entry.tensor}, std::size_t{entry.block}, entry.sum);
  }
}

}  // namespace tessera::checkpoint
