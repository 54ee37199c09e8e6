#include <fmt/format.h>

#include <algorithm>

#include "engine/model_state.hpp"
#include "tessera/base/error.hpp"

// What ModelOptions::checks asks for, where passes come to it.
namespace tessera {

void ShardedModel::State::require_backward() const {
  if (options.checks == Checks::off) { return; }
  for (std::size_t u = 0; u < units.size(); ++u) {
    const engine::UnitState& unit = units[u];
    const auto trains = [this](std::size_t one) { return units[one].trainable(); };
    if (unit.backward_uses >= unit.forward_uses || std::ranges::none_of(with_owners(u), trains)) {
      continue;
    }
    throw ContractError{fmt::format(
        "step {}, micro-batch {} of {}: unit '{}' has had {} forward scopes and {} backward "
        "scopes. Its missing gradients would count as zeros: open backward for each forward, "
        "evaluate with evaluate(), or set `checks` to off if that is meant",
        journal.step() + 1, micro_batch + 1, options.accumulate, unit.name, unit.forward_uses,
        unit.backward_uses)};
  }
}

void ShardedModel::State::compare_gradients(Unit unit) {
  if (!checks) { return; }
  for (const std::size_t u : with_owners(unit.index())) {
    if (units[u].open_scopes == 0) { checks->compare(u); }
  }
}

void ShardedModel::State::guard_gradients(Unit unit) {
  if (!checks) { return; }
  for (const std::size_t u : with_owners(unit.index())) {
    if (units[u].open_scopes == 1) { checks->guard(u); }
  }
}

void ShardedModel::State::inspect_gradients(Unit unit) {
  if (!checks) { return; }
  for (const std::size_t u : with_owners(unit.index())) {
    if (units[u].open_scopes == 1) { checks->inspect(u); }
  }
}

void ShardedModel::State::seal_gradients(Unit unit) {
  if (!checks) { return; }
  for (const std::size_t u : with_owners(unit.index())) {
    if (units[u].open_scopes == 0) { checks->seal(u); }
  }
}

}  // namespace tessera
