#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "tessera/memory/tracker.hpp"
#include "tessera/world/world.hpp"

namespace tessera {

/// The least and the most of a number over the ranks, and the first rank that has it.
struct Skew {
  std::size_t least_bytes = 0;
  int least_rank = 0;
  std::size_t most_bytes = 0;
  int most_rank = 0;

  friend bool operator==(const Skew&, const Skew&) = default;
};

/// What every rank of a job holds and has held.
struct JobMemory {
  std::vector<MemoryReport> ranks;           ///< by rank
  std::vector<std::size_t> host_peak_bytes;  ///< by rank: of World::host_memory()

  [[nodiscard]] Skew live() const;
  [[nodiscard]] Skew peak() const;
  [[nodiscard]] Skew most_in_use() const;
  /// A table for people, 100 columns wide at most; neighbouring ranks that are alike share a line.
  [[nodiscard]] std::string text() const;
};

/// *Collective.* Every rank's World::memory().report() and the peak of its host pool, the same on
/// all ranks. Blocks.
[[nodiscard]] JobMemory gather_memory(World& world);

}  // namespace tessera
