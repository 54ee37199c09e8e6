#pragma once

#include <functional>
#include <vector>

#include "engine/unit_state.hpp"
#include "tessera/memory/slot_ring.hpp"
#include "tessera/world/world.hpp"

namespace tessera::engine {

/// The copies in which gradients travel where the reduce dtype is narrower than their own: one slot
/// for the blocks, as the reduce stream handles one unit after another, and one a root unit.
/// Nothing, and no memory, where it is not narrower.
///
/// Time: everything enqueues on the reduce stream.
class Wire {
 public:
  using ViewOf = std::function<View(std::size_t segment)>;

  Wire(World& world, const std::vector<UnitState>& units);

  /// Whether any unit travels in a copy.
  [[nodiscard]] bool narrows() const noexcept { return arena_.bytes() > 0; }
  /// Rounds `unit`'s gradients into its slot.
  void load(std::size_t unit, const ViewOf& gradients);
  /// What is to be reduced: the copy between `load` and `unload`, else `gradient` itself.
  [[nodiscard]] View view(std::size_t unit, std::size_t segment, View gradient) const;
  /// Writes elements `kept(segment)` of the reduced copy back into the gradients.
  void unload(std::size_t unit, const ViewOf& gradients,
              const std::function<Range(std::size_t segment)>& kept);

 private:
  World& world_;
  const std::vector<UnitState>& units_;
  Arena arena_;
  std::vector<SlotRing> rings_;
  std::vector<std::size_t> ring_;  // by unit
  std::vector<Slot*> slot_;        // by unit: null unless loaded
};

}  // namespace tessera::engine
