#include "engine/parameter_store.hpp"

#include <algorithm>
#include <utility>

#include "engine/rank0_parameters.hpp"
#include "engine/replicated_parameters.hpp"
#include "engine/sharded_parameters.hpp"
#include "engine/slot_plan.hpp"

namespace tessera::engine {

ParameterStore::ParameterStore(World& world, const Units& units, Journal& journal, Channel gather)
    : world_{world},
      units_{units},
      journal_{journal},
      gather_{gather},
      compute_mark_{world.device().make_event()},
      gather_mark_{world.device().make_event()},
      arrivals_(units.size()) {
  for (std::size_t u = 0; u < units.size(); ++u) {
    if (units[u].offloaded) { arrivals_[u] = world.device().make_event(); }
  }
}

void ParameterStore::order_gather_after_compute() {
  world_.compute_stream().record(compute_mark_.get());
  gather_.stream.wait_for(compute_mark_.get());
}

void ParameterStore::settle() {
  gather_.stream.record(gather_mark_.get());
  world_.compute_stream().wait_for(gather_mark_.get());
}

void ParameterStore::submit(const char* verb, std::size_t unit, Batch batch) {
  journal_.issue(verb, units_[unit].name);
  gather_.communicator.submit(std::move(batch), gather_.stream);
}

int most_prefetch(const ModelOptions& options) noexcept {
  return std::max(options.prefetch, options.prefetch_backward.value_or(options.prefetch));
}

std::unique_ptr<ParameterStore> make_parameter_store(World& world, const Units& units,
                                                     Journal& journal, const ModelOptions& options,
                                                     const Sharding& group) {
  const StrategyTraits traits = traits_of(options.strategy);
  switch (traits.parameters) {
    case Holding::rank0:
      return std::make_unique<Rank0Parameters>(world, units, journal);
    case Holding::sharded:
      return std::make_unique<ShardedParameters>(world, units, journal, group,
                                                 most_prefetch(options) + 1,
                                                 parameter_poison(world, options.checks));
    case Holding::replicated:
      break;
  }
  return std::make_unique<ReplicatedParameters>(world, units, journal, traits.optimizer, group);
}

}  // namespace tessera::engine
