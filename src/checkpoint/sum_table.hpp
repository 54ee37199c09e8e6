#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "checkpoint/checksum.hpp"

namespace tessera {

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

}  // namespace tessera
