#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "engine/plan/unit_plan.hpp"
#include "tessera/engine/checks.hpp"
#include "tessera/memory/slot_ring.hpp"
#include "tessera/world/world.hpp"

namespace tessera::engine {

/// What slot a unit needs.
enum class SlotNeed : std::uint8_t { none, shared, own };

/// Root units need their own slot.
[[nodiscard]] SlotNeed root_or_shared(const UnitPlan& unit) noexcept;

/// The slots that a set of units needs: rings that units of similar size share, each sized by its
/// largest unit, and a ring of one slot for each unit with its own slot, such as root units. Pure
/// data.
///
/// The sizes in ascending order are cut into classes, one ring each, so that the rings take the
/// fewest bytes; of equal plans the one with the fewest rings. One ring for all units is one of the
/// plans compared, and the plan of units that are all equal.
struct SlotPlan {
  struct Ring {
    int slots = 0;
    std::size_t slot_bytes = 0;
  };
  std::vector<Ring> rings;                ///< shared rings by ascending size, then units' own ones
  std::vector<std::size_t> ring_of_unit;  ///< one behind all units if it needs none

  using BytesOf = std::size_t (UnitPlan::*)() const noexcept;
  using NeedOf = std::function<SlotNeed(const UnitPlan& unit)>;
  using Among = std::function<bool(std::size_t unit)>;
  /// Returns how many of the units that `among` accepts hold a slot at once, at most.
  using MostAtOnce = std::function<int(const Among& among)>;
  /// `bytes_of(unit)` is the size that a unit needs. A ring has as many slots as it has units, or
  /// as `most_at_once` says if that is fewer. Any set of units that `most_at_once` allows finds
  /// slots.
  [[nodiscard]] static SlotPlan make(const UnitPlans& units, const MostAtOnce& most_at_once,
                                     BytesOf bytes_of, const NeedOf& need_of = &root_or_shared);
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
