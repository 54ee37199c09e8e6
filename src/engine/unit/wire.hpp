#pragma once

#include <functional>

#include "engine/plan/unit_plan.hpp"
#include "tessera/memory/slot_ring.hpp"
#include "tessera/world/world.hpp"

namespace tessera::engine {

/// The copy in which a unit's gradients travel if the reduce dtype is narrower than theirs. It does
/// nothing otherwise.
///
/// Time: everything enqueues on the reduce stream.
class Wire {
 public:
  using ViewOf = std::function<View(std::size_t segment)>;

  /// `ring`: the slots for the copies. `plan` and `ring` outlive the wire.
  Wire(World& world, const UnitPlan& plan, SlotRing& ring)
      : world_{world}, plan_{plan}, ring_{ring} {}

  /// Rounds the gradients into a slot.
  void load(const ViewOf& gradients, Stream stream);
  /// What is reduced: the copy between `load` and `unload`, otherwise `gradient` itself.
  [[nodiscard]] View view(std::size_t segment, View gradient) const;
  /// Writes the reduced elements that this rank updates from the copy back to the gradients.
  void unload(const ViewOf& gradients, Stream stream);

 private:
  World& world_;
  const UnitPlan& plan_;
  SlotRing& ring_;
  Slot* slot_ = nullptr;  // while loaded
};

}  // namespace tessera::engine
