#include "engine/plan/slot_plan.hpp"

#include <algorithm>

namespace tessera::engine {

SlotPlan SlotPlan::make(const UnitPlans& units, int shared_slots, BytesOf bytes_of,
                        HasOwn has_own) {
  SlotPlan plan;
  plan.rings.push_back({});
  int sharing = 0;
  for (const UnitPlan& unit : units) {
    const std::size_t bytes = (unit.*bytes_of)();
    if ((unit.*has_own)()) {
      plan.ring_of_unit.push_back(plan.rings.size());
      plan.rings.push_back({1, bytes});
    } else {
      plan.ring_of_unit.push_back(0);
      plan.rings[0].slot_bytes = std::max(plan.rings[0].slot_bytes, bytes);
      ++sharing;
    }
  }
  plan.rings[0].slots = std::min(sharing, shared_slots);
  return plan;
}

std::size_t SlotPlan::bytes() const noexcept {
  std::size_t sum = 0;
  for (const Ring& ring : rings) {
    sum += static_cast<std::size_t>(ring.slots) * Arena::need(ring.slot_bytes);
  }
  return sum;
}

std::vector<SlotRing> SlotPlan::cut(World& world, Category category, Arena& arena,
                                    SlotPoison poison) const {
  const SlotRingPlace place{world.device(), world.memory(), category, poison};
  std::vector<SlotRing> cut;
  for (const Ring& ring : rings) { cut.emplace_back(place, arena, ring.slots, ring.slot_bytes); }
  return cut;
}

SlotPoison parameter_poison(const World& world, Checks checks) noexcept {
  return checks == Checks::memory ? SlotPoison::nan : world.options().testing.poison;
}

SlotPoison gradient_poison(const World& world, Checks checks) noexcept {
  return checks == Checks::memory ? SlotPoison::tiny : world.options().testing.poison;
}

}  // namespace tessera::engine
