#include "checkpoint/rank_reads.hpp"

#include <algorithm>
#include <vector>

#include "checkpoint/checksum.hpp"

namespace tessera::checkpoint {

void RankReads::read(const std::string& file, std::uint64_t first, std::span<std::byte> out) const {
  checkpoint_.read_file(file, first, out);
}

/// `buffer` has room for whole chunks.
void RankReads::verify_block(const ManifestTensor& tensor, std::size_t block,
                             std::span<std::byte> buffer) const {
  const std::uint64_t end = std::min((block + 1) * kChecksumBlock, tensor.bytes);
  TensorSums sums{tensor.bytes, tensor.chunk_bytes};
  for (std::uint64_t at = block * kChecksumBlock; at < end; at += buffer.size()) {
    const std::span bytes = buffer.first(std::min<std::uint64_t>(buffer.size(), end - at));
    checkpoint_.read_bytes(tensor, at, bytes);
    sums.add(at, bytes);
  }
  if (sums.sums().at(block) != tensor.sums.at(block)) {
    checkpoint_.refuse_block(tensor, block, sums.sums()[block]);
  }
}

// A chunk's bytes are a power of two, as they divide a block.
void RankReads::verify_part_of(std::size_t part, std::size_t parts) const {
  constexpr std::uint64_t kReadAtOnce = std::uint64_t{1} << 20;
  std::vector<std::byte> buffer;
  std::size_t number = 0;
  for (const ManifestTensor& tensor : checkpoint_.manifest_.tensors) {
    if (!checkpoint_.contents_.contains(content_of(tensor.role))) { continue; }
    buffer.resize(std::max<std::uint64_t>({buffer.size(), kReadAtOnce, tensor.chunk_bytes}));
    for (std::size_t block = 0; block < tensor.sums.size(); ++block) {
      if (number++ % parts == part) { verify_block(tensor, block, buffer); }
    }
  }
}

}  // namespace tessera::checkpoint
