#include "engine/unit/parameters_rank0.hpp"

#include <utility>

namespace tessera::engine {

Rank0Parameters::Rank0Parameters(const UnitPlan& plan, GatherLane& lane, void* base)
    : ParameterHome{plan, lane}, base_{base}, ready_{lane.world().device().make_event()} {}

View Rank0Parameters::resident(std::size_t segment) const {
  return lane().world().rank() == 0 ? whole(segment) : plan().parameter_view(segment, nullptr);
}

View Rank0Parameters::whole(std::size_t segment) const {
  return plan().parameter_view(segment, base_);
}

Category Rank0Parameters::category() const {
  return lane().world().rank() == 0 ? Category::parameters : Category::gather;
}

void Rank0Parameters::await() {
  compute().wait_for(ready_.get());
}

void Rank0Parameters::copy_from_rank0() {
  Batch batch{"broadcast " + plan().name};
  for (std::size_t s = 0; s < plan().segments(); ++s) {
    if (whole(s).elems > 0) { batch.broadcast(whole(s), 0); }
  }
  if (batch.ops().empty()) { return; }
  await_arrival(lane().stream());
  lane().submit("broadcast", plan().name, std::move(batch));
  lane().stream().record(ready_.get());
}

}  // namespace tessera::engine
