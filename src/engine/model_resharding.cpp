#include "engine/model/options.hpp"
#include "engine/model_state.hpp"

// Which units stay gathered for how long.
namespace tessera {

using engine::UnitState;

// When all aliases are known: they turn their owners into root units.
void ShardedModel::State::decide_residence() {
  if (!engine::gathers(options.strategy)) { return; }
  for (UnitState& unit : units) {
    using enum engine::Residence;
    const bool stays =
        unit.is_root() || unit.options.reshard.value_or(options.reshard) == Reshard::after_backward;
    unit.residence = stays ? micro_batch : use;
    const std::int64_t elems = unit.layout.parameter_elems();
    if (elems > 0 && elems <= options.persist_elems) { unit.residence = update; }
  }
}

}  // namespace tessera
