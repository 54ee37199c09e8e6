#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "tessera/memory/tracker.hpp"
#include "tessera/world/world.hpp"

namespace tessera {

/// The least and the greatest of a number of bytes over the ranks.
struct Skew {
  std::size_t least_bytes = 0;  ///< the least over the ranks
  int least_rank = 0;           ///< the first rank with the least
  std::size_t most_bytes = 0;   ///< the greatest over the ranks
  int most_rank = 0;            ///< the first rank with the greatest

  friend bool operator==(const Skew&, const Skew&) = default;
};

/// The memory of every rank of a job, now and at its peak.
struct JobMemory {
  std::vector<MemoryReport> ranks;           ///< by rank
  std::vector<std::size_t> host_peak_bytes;  ///< by rank: the peak of World::host_memory()

  /// Returns the skew of the live bytes.
  [[nodiscard]] Skew live() const;
  /// Returns the skew of MemoryReport::peak_bytes.
  [[nodiscard]] Skew peak() const;
  /// Returns the skew of MemoryReport::most_in_use_bytes.
  [[nodiscard]] Skew most_in_use() const;
  /// Returns a table for people, at most 100 columns wide. Neighbouring ranks with equal values
  /// share a line.
  [[nodiscard]] std::string text() const;
};

/// *Collective.* Gathers every rank's World::memory().report() and the peak of its host pool. The
/// result is the same on all ranks. Blocks.
[[nodiscard]] JobMemory gather_memory(World& world);

}  // namespace tessera
