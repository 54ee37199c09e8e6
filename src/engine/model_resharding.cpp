#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "engine/model_state.hpp"
#include "tessera/base/error.hpp"

// Which units stay gathered for how long, and where that can be asked for.
namespace tessera {

using engine::UnitState;

namespace {

bool gathers(Strategy strategy) {
  return traits_of(strategy).parameters == Holding::sharded;
}

}  // namespace

void engine::check_resharding(const ModelOptions& options) {
  const char* given = nullptr;
  if (options.prefetch_backward) { given = "prefetch_backward"; }
  if (options.reshard != Reshard::after_forward) { given = "reshard"; }
  const bool no_backward = options.purpose == Purpose::inference;
  if (given != nullptr && no_backward) {
    throw ConfigError{
        fmt::format("a model for inference has no backward: leave `{}` alone", given)};
  }
  if (options.persist_elems > 0) { given = "persist_elems"; }
  if (given == nullptr || gathers(options.strategy)) { return; }
  throw ConfigError{fmt::format(
      "`{}` has no effect under {}, whose ranks hold parameters whole: leave it alone, or choose "
      "zero3 or hybrid, which gather them",
      given, to_string(options.strategy))};
}

void ShardedModel::State::check_reshard(const std::string& unit,
                                        const UnitOptions& unit_options) const {
  if (!unit_options.reshard) { return; }
  if (unit_options.kind == UnitKind::root) {
    throw ConfigError{fmt::format(
        "unit '{}' is a root unit, which stays gathered until its last use: leave `reshard` alone",
        unit)};
  }
  if (!gathers(options.strategy)) {
    throw ConfigError{
        fmt::format("unit '{}': `reshard` has no effect under {}, whose ranks hold parameters "
                    "whole: leave it alone, or choose zero3 or hybrid",
                    unit, to_string(options.strategy))};
  }
  if (options.purpose == Purpose::inference) {
    throw ConfigError{fmt::format(
        "unit '{}': a model for inference has no backward: leave `reshard` alone", unit)};
  }
}

// When all aliases are known: they turn their owners into root units.
void ShardedModel::State::decide_residence() {
  if (!gathers(options.strategy)) { return; }
  std::int64_t smallest = std::numeric_limits<std::int64_t>::max();
  bool any = options.persist_elems == 0;
  for (UnitState& unit : units) {
    using enum engine::Residence;
    const bool stays =
        unit.is_root() || unit.options.reshard.value_or(options.reshard) == Reshard::after_backward;
    unit.residence = stays ? micro_batch : use;
    const std::int64_t elems = unit.layout.parameter_elems();
    if (elems == 0) { continue; }
    smallest = std::min(smallest, elems);
    if (elems > options.persist_elems) { continue; }
    unit.residence = update;
    any = true;
  }
  if (any || smallest == std::numeric_limits<std::int64_t>::max()) { return; }
  throw ConfigError{
      fmt::format("persist_elems is {}, but the smallest unit has {} elements: nothing would "
                  "persist; raise it, or leave it at 0",
                  options.persist_elems, smallest)};
}

}  // namespace tessera
