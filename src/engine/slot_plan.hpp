#pragma once

#include <cstddef>
#include <vector>

#include "engine/unit_state.hpp"
#include "tessera/comm/world.hpp"
#include "tessera/memory/slot_ring.hpp"

namespace tessera::engine {

/// Which slots a set of units needs: one ring for the blocks, sized by the largest of them, and a
/// ring of one for each root unit, so that a vocabulary matrix does not size them all. Pure data.
struct SlotPlan {
  struct Ring {
    int slots = 0;
    std::size_t slot_bytes = 0;
  };
  std::vector<Ring> rings;  ///< [0]: the blocks'
  std::vector<std::size_t> ring_of_unit;

  /// `bytes_of(unit)` is what a unit needs; at most `block_slots` blocks at once.
  [[nodiscard]] static SlotPlan make(const std::vector<UnitState>& units, int block_slots,
                                     std::size_t (UnitState::*bytes_of)() const noexcept);
  [[nodiscard]] std::size_t bytes() const noexcept;
  /// Cuts the rings from `arena`, which holds `bytes()` of `category`, used in parts.
  [[nodiscard]] std::vector<SlotRing> cut(World& world, Category category, Arena& arena) const;
};

}  // namespace tessera::engine
