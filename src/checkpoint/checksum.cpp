#include "checkpoint/checksum.hpp"

#include <algorithm>

#include "tessera/base/error.hpp"
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace tessera::checkpoint {

TensorSums::TensorSums(std::uint64_t tensor_bytes, std::uint64_t chunk_bytes)
    : tensor_bytes_{tensor_bytes}, chunk_bytes_{chunk_bytes} {
  expects(chunk_bytes > 0 && kChecksumBlock % chunk_bytes == 0,
          "TensorSums: the bytes of a chunk must divide those of a block");
  sums_.resize(tensor_bytes / kChecksumBlock + (tensor_bytes % kChecksumBlock != 0 ? 1 : 0));
}

void TensorSums::add(std::uint64_t first, std::span<const std::byte> bytes) {
  expects(first <= tensor_bytes_ && bytes.size() <= tensor_bytes_ - first,
          "TensorSums: the bytes are outside the tensor");
  const std::uint64_t end = first + bytes.size();
  expects(first % chunk_bytes_ == 0 && (end % chunk_bytes_ == 0 || end == tensor_bytes_),
          "TensorSums: a part must begin and end at a chunk");

  std::uint64_t chunk = first / chunk_bytes_;
  const std::byte* from = bytes.data();
  for (std::uint64_t at = first; at < end;) {
    const std::uint64_t block = at / kChecksumBlock;
    const std::uint64_t block_end = std::min(end, (block + 1) * kChecksumBlock);
    std::uint64_t sum = 0;
    for (; block_end - at >= chunk_bytes_; at += chunk_bytes_, from += chunk_bytes_) {
      sum += XXH3_64bits_withSeed(from, chunk_bytes_, chunk++);
    }
    if (at < block_end) {  // the tensor's last chunk
      sum += XXH3_64bits_withSeed(from, block_end - at, chunk);
      at = block_end;
    }
    sums_[block] += sum;
  }
}

void TensorSums::add_sum(std::size_t block, std::uint64_t sum) {
  expects(block < sums_.size(), "TensorSums: the block is outside the tensor");
  sums_[block] += sum;
}

void SumTable::add(std::size_t tensor, std::uint64_t bytes_in_all, std::uint64_t chunk_bytes,
                   std::uint64_t first_byte, std::span<const std::byte> bytes) {
  sums_.try_emplace(tensor, bytes_in_all, chunk_bytes).first->second.add(first_byte, bytes);
}

void SumTable::add(const SumTable& more) {
  for (const auto& [tensor, sums] : more.sums_) {
    const auto [mine, is_new] = sums_.try_emplace(tensor, sums);
    for (std::size_t block = 0; !is_new && block < sums.sums().size(); ++block) {
      mine->second.add_sum(block, sums.sums()[block]);
    }
  }
}

std::string SumTable::text() const {
  std::string text;
  for (const auto& [tensor, sums] : sums_) {
    for (std::size_t block = 0; block < sums.sums().size(); ++block) {
      const BlockSum entry{.tensor = static_cast<std::uint32_t>(tensor),
                           .block = static_cast<std::uint32_t>(block),
                           .sum = sums.sums()[block]};
      if (entry.sum == 0) { continue; }
      text.append(reinterpret_cast<const char*>(&entry), sizeof entry);
    }
  }
  return text;
}

}  // namespace tessera::checkpoint
