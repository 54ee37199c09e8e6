#include "engine/rank0_parameters.hpp"

namespace tessera::engine {

Rank0Parameters::Rank0Parameters(World& world, const Units& units, Journal& journal)
    : ParameterStore{world, units, journal, world.gather_channel()} {
  std::size_t bytes = 0;
  for (const UnitState& unit : units) { bytes += Arena::need(unit.parameter_bytes()); }
  arena_ = world.rank() == 0
               ? Arena{world.allocate(Category::parameters, bytes, "parameters")}
               : Arena{world.allocate(Category::gather, bytes, "replica of rank 0's parameters")};
  for (const UnitState& unit : units) {
    base_.push_back(arena_.take(unit.parameter_bytes()));
    ready_.push_back(world.device().make_event());
  }
}

View Rank0Parameters::resident(std::size_t unit, std::size_t segment) const {
  return world_.rank() == 0 ? whole(unit, segment) : units_[unit].parameter_view(segment, nullptr);
}

Range Rank0Parameters::resident_range(std::size_t unit, std::size_t segment) const {
  return {0, world_.rank() == 0 ? units_[unit].layout.segments()[segment].padded_elems() : 0};
}

View Rank0Parameters::whole(std::size_t unit, std::size_t segment) const {
  return units_[unit].parameter_view(segment, base_[unit]);
}

void Rank0Parameters::await(std::size_t unit) {
  world_.compute_stream().wait_for(ready_[unit].get());
}

void Rank0Parameters::begin_micro_batch() {
  // The copies' last readers and rank 0's update came before on the compute stream.
  order_gather_after_compute();
  for (const std::size_t u : forward_) {
    Batch batch{"broadcast " + units_[u].name};
    for (std::size_t s = 0; s < units_[u].layout.segments().size(); ++s) {
      if (whole(u, s).elems > 0) { batch.broadcast(whole(u, s), 0); }
    }
    if (batch.ops().empty()) { continue; }
    await_arrival(u, gather_.stream);
    submit("broadcast", u, std::move(batch));
    gather_.stream.record(ready_[u].get());
  }
}

std::size_t Rank0Parameters::persistent_bytes() const noexcept {
  return world_.rank() == 0 ? arena_.bytes() : 0;
}

}  // namespace tessera::engine
