#include <algorithm>

#include "engine/model/unit_rules.hpp"
#include "engine/model_state.hpp"

// Which units' optimizer state lies in the host pool, and in which order units are updated.
namespace tessera {

using engine::UnitState;

// The last stay: the norm of what is on the device is added to what the host has added, in the
// order of units.
void ShardedModel::State::decide_offload() {
  if (options.offload == Offload::none) { return; }
  std::int64_t total = 0;
  for (const UnitState& unit : units) { total += engine::updated_elems(unit.layout); }
  const double most = static_cast<double>(options.offload_keep) * static_cast<double>(total);
  std::int64_t kept = 0;
  bool full = false;
  for (std::size_t u = units.size(); u-- > 0;) {
    const std::int64_t elems = engine::updated_elems(units[u].layout);
    full = full || static_cast<double>(kept + elems) > most;
    units[u].offloaded = full && elems > 0;
    kept += full ? 0 : elems;
  }
}

std::vector<std::size_t> ShardedModel::State::units_in_forward_order() const {
  std::vector<std::size_t> order;
  const auto add = [&](std::size_t unit) {
    if (std::ranges::find(order, unit) == order.end()) { order.push_back(unit); }
  };
  for (const std::size_t unit : schedule.units()) { std::ranges::for_each(with_owners(unit), add); }
  for (std::size_t u = 0; u < units.size(); ++u) { add(u); }
  return order;
}

}  // namespace tessera
