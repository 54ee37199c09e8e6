#include "engine/plan/slot_plan.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include "engine/plan/size_classes.hpp"

namespace tessera::engine {

SlotNeed root_or_shared(const UnitPlan& unit) noexcept {
  return unit.is_root() ? SlotNeed::own : SlotNeed::shared;
}

SlotPlan SlotPlan::make(const UnitPlans& units, const MostAtOnce& most_at_once, BytesOf bytes_of,
                        const NeedOf& need_of) {
  const auto bytes = [&](std::size_t u) { return (units[u].*bytes_of)(); };
  const auto shares = [&](std::size_t u) { return need_of(units[u]) == SlotNeed::shared; };
  std::vector<std::size_t> sharing;
  for (std::size_t u = 0; u < units.size(); ++u) {
    if (shares(u)) { sharing.push_back(u); }
  }
  std::ranges::sort(sharing, {}, [&](std::size_t u) { return std::pair{bytes(u), u}; });
  std::vector<std::size_t> sizes;
  std::ranges::transform(sharing, std::back_inserter(sizes), bytes);

  SlotPlan plan;
  plan.ring_of_unit.resize(units.size(), units.size());
  for (const SizeClass& one : size_classes(sizes, most_at_once(shares))) {
    const std::size_t ring = plan.rings.size();
    for (std::size_t i = 0; i < one.count; ++i) {
      plan.ring_of_unit[sharing[one.first + i]] = ring;
    }
    const int most = most_at_once([&](std::size_t u) { return plan.ring_of_unit[u] == ring; });
    plan.rings.push_back({std::min(one.slots, most), one.slot_bytes});
  }
  for (std::size_t u = 0; u < units.size(); ++u) {
    if (need_of(units[u]) != SlotNeed::own) { continue; }
    plan.ring_of_unit[u] = plan.rings.size();
    plan.rings.push_back({1, bytes(u)});
  }
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
