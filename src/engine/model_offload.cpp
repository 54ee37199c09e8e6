#include <fmt/format.h>

#include <algorithm>

#include "engine/model_state.hpp"
#include "tessera/base/error.hpp"

// Which units' optimizer state lies in the host pool, in which order they are updated, and what
// cannot be offloaded.
namespace tessera {

using engine::UnitState;

namespace {

std::int64_t updated_elems(const UnitState& unit) {
  std::int64_t elems = 0;
  for (const SegmentLayout& segment : unit.layout.segments()) {
    elems += segment.trainable() ? segment.padded_elems() : 0;
  }
  return elems;
}

bool has_narrow_parameters(const UnitState& unit) {
  return std::ranges::any_of(unit.layout.segments(), [](const SegmentLayout& segment) {
    return segment.trainable() && segment.dtypes().parameter != segment.dtypes().master;
  });
}

}  // namespace

void engine::check_offload(const ModelOptions& options) {
  const float keep = options.offload_keep;
  if (!(keep >= 0.0F && keep < 1.0F)) {
    throw ConfigError{fmt::format(
        "offload_keep is {}: choose the fraction whose optimizer state stays on the device, from 0 "
        "to below 1; with 1 nothing is offloaded, as without `offload`",
        keep)};
  }
  if (keep > 0.0F && options.offload == Offload::none) {
    throw ConfigError{
        "offload_keep has no effect where nothing is offloaded: leave it at 0, or set `offload` to "
        "optimizer"};
  }
  if (options.offload != Offload::none && options.master_weights != MasterWeights::fp32) {
    throw ConfigError{
        "remainders save device memory, and an offloaded optimizer's master weights are in the "
        "host's: leave `master_weights` at fp32, or `offload` at none"};
  }
}

// The last stay: the norm of what is on the device is added to what the host has added, in the
// order of units.
void ShardedModel::State::decide_offload() {
  if (options.offload == Offload::none) { return; }
  std::int64_t total = 0;
  for (const UnitState& unit : units) { total += updated_elems(unit); }
  if (total == 0) {
    throw ConfigError{
        "offload has no use: nothing is trained, so that there is nothing to take off the device; "
        "set `offload` to none"};
  }
  const double most = static_cast<double>(options.offload_keep) * static_cast<double>(total);
  std::int64_t kept = 0;
  std::int64_t refused = 0;  // elements of the first unit that did not fit
  for (std::size_t u = units.size(); u-- > 0;) {
    const std::int64_t elems = updated_elems(units[u]);
    const bool fits = refused == 0 && static_cast<double>(kept + elems) <= most;
    units[u].offloaded = !fits && elems > 0;
    kept += fits ? elems : 0;
    if (!fits && refused == 0) { refused = elems; }
  }
  if (kept > 0 || options.offload_keep == 0.0F) { return; }
  throw ConfigError{fmt::format(
      "offload_keep is {}, but the last unit has {} of the {} elements that are trained: no whole "
      "unit would stay; raise it, or leave it at 0",
      options.offload_keep, refused, total)};
}

void ShardedModel::State::check_offload(const Optimizer& rule) const {
  if (options.offload == Offload::none) { return; }
  const bool holds_nothing =
      state_count(rule) == 0 && std::ranges::none_of(units, has_narrow_parameters);
  if (!holds_nothing) { return; }
  throw ConfigError{fmt::format(
      "offload has no use: {} keeps no state, and fp32 parameters need no masters, so that there "
      "is nothing to take off the device; set `offload` to none",
      tessera::describe(rule))};
}

// The update of a step runs beside the next step's forward: one graph cannot hold both.
void ShardedModel::State::require_no_graph() const {
  if (checks && world.in_graph()) {
    throw ConfigError{
        "a step that Checks::memory looks at cannot be one CUDA graph: its scopes wait for the "
        "device; run it without a graph, or set `checks` to strict or off"};
  }
  if (options.offload == Offload::none || !world.in_graph()) { return; }
  throw ConfigError{
      "a step whose optimizer is offloaded cannot be one CUDA graph: its update runs on the host "
      "beside the next step; run it without a graph, or set `offload` to none"};
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
