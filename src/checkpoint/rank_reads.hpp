#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "tessera/checkpoint/reader.hpp"

namespace tessera::checkpoint {

/// What ranks that load or verify a checkpoint together read of it. The files are the reader's.
///
/// Errors:  as the reader's.
/// Threads: any.
class RankReads {
 public:
  explicit RankReads(const CheckpointReader& checkpoint) : checkpoint_{checkpoint} {}

  /// Reads bytes [first, first + out.size()) of `file`, one of Manifest::files.
  void read(const std::string& file, std::uint64_t first, std::span<std::byte> out) const;
  /// Verifies every `parts`-th block, from number `part` on.
  void verify_part_of(std::size_t part, std::size_t parts) const;

 private:
  void verify_block(const ManifestTensor& tensor, std::size_t block,
                    std::span<std::byte> buffer) const;

  const CheckpointReader& checkpoint_;
};

}  // namespace tessera::checkpoint
