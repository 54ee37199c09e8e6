#pragma once

#include <cstddef>
#include <vector>

#include "engine/plan/unit_plan.hpp"
#include "tessera/engine/checks.hpp"
#include "tessera/memory/slot_ring.hpp"
#include "tessera/world/world.hpp"

namespace tessera::engine {

/// The slots that a set of units needs: one ring that most units share, sized by the largest of
/// them, and a ring of one slot for each unit with its own slot, such as root units, so that a
/// vocabulary matrix does not size them all. Pure data.
struct SlotPlan {
  struct Ring {
    int slots = 0;
    std::size_t slot_bytes = 0;
  };
  std::vector<Ring> rings;  ///< [0]: the shared one
  std::vector<std::size_t> ring_of_unit;

  using BytesOf = std::size_t (UnitPlan::*)() const noexcept;
  using HasOwn = bool (UnitPlan::*)() const noexcept;
  /// `bytes_of(unit)` is the size that a unit needs; at most `shared_slots` units share at once.
  [[nodiscard]] static SlotPlan make(const UnitPlans& units, int shared_slots, BytesOf bytes_of,
                                     HasOwn has_own = &UnitPlan::is_root);
  [[nodiscard]] std::size_t bytes() const noexcept;
  /// Cuts the rings from `arena`, which holds `bytes()` bytes of `category`, used in parts.
  [[nodiscard]] std::vector<SlotRing> cut(World& world, Category category, Arena& arena,
                                          SlotPoison poison) const;
};

/// What released slots of gathered parameters, and of gradients, are filled with: late reads of
/// parameters give NaN, late `+=` to gradients changes them.
[[nodiscard]] SlotPoison parameter_poison(const World& world, Checks checks) noexcept;
[[nodiscard]] SlotPoison gradient_poison(const World& world, Checks checks) noexcept;

}  // namespace tessera::engine
