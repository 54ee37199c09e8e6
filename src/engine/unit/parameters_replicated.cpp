#include "engine/unit/parameters_replicated.hpp"

#include <utility>

namespace tessera::engine {

ReplicatedParameters::ReplicatedParameters(const UnitPlan& plan, GatherLane& lane, void* base,
                                           Holding optimizer)
    : ParameterHome{plan, lane},
      base_{base},
      optimizer_{optimizer},
      ready_{lane.world().device().make_event()} {}

View ReplicatedParameters::whole(std::size_t segment) const {
  return plan().parameter_view(segment, base_);
}

void ReplicatedParameters::await() {
  await_arrival(compute());
  compute().wait_for(ready_.get());
}

void ReplicatedParameters::send_updated() {
  if (optimizer_ == Holding::replicated) { return; }
  Batch batch{"gather " + plan().name};
  for (std::size_t s = 0; s < plan().segments(); ++s) {
    const Range own = plan().owned[s].updates;
    const View all = whole(s);
    if (own.elems > 0) { batch.all_gather(all.slice(own.first, own.elems), all); }
  }
  if (batch.ops().empty()) { return; }
  await_arrival(lane().stream());
  lane().submit("gather", plan().name, std::move(batch));
  lane().stream().record(ready_.get());
}

}  // namespace tessera::engine
