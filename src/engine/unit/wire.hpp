#pragma once

#include <functional>

#include "engine/plan/unit_plan.hpp"
#include "tessera/memory/slot_ring.hpp"
#include "tessera/world/world.hpp"

namespace tessera::engine {

/// The copy in which a unit's gradients travel where the reduce dtype is narrower than their own.
/// Elsewhere it does nothing.
///
/// Time: everything enqueues on the reduce stream.
class Wire {
 public:
  using ViewOf = std::function<View(std::size_t segment)>;

  /// `ring`: whose slots the copies are made in; both outlive the wire.
  Wire(World& world, const UnitPlan& plan, SlotRing& ring)
      : world_{world}, plan_{plan}, ring_{ring} {}

  /// Rounds the gradients into a slot.
  void load(const ViewOf& gradients, Stream stream);
  /// What is to be reduced: the copy between `load` and `unload`, else `gradient` itself.
  [[nodiscard]] View view(std::size_t segment, View gradient) const;
  /// Writes the elements that this rank updates of the reduced copy back into the gradients.
  void unload(const ViewOf& gradients, Stream stream);

 private:
  World& world_;
  const UnitPlan& plan_;
  SlotRing& ring_;
  Slot* slot_ = nullptr;  // while loaded
};

}  // namespace tessera::engine
