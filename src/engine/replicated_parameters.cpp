#include "engine/replicated_parameters.hpp"

namespace tessera::engine {

ReplicatedParameters::ReplicatedParameters(World& world, const Units& units, Journal& journal,
                                           Holding optimizer, const Sharding& group)
    : ParameterStore{world, units, journal, group.gather()}, optimizer_{optimizer}, place_{group} {
  std::size_t bytes = 0;
  for (const UnitState& unit : units) { bytes += Arena::need(unit.parameter_bytes()); }
  arena_ = Arena{world.allocate(Category::parameters, bytes, "parameters")};
  for (const UnitState& unit : units) {
    base_.push_back(arena_.take(unit.parameter_bytes()));
    ready_.push_back(world.device().make_event());
  }
}

View ReplicatedParameters::resident(std::size_t unit, std::size_t segment) const {
  return whole(unit, segment);
}

Range ReplicatedParameters::resident_range(std::size_t unit, std::size_t segment) const {
  return {0, units_[unit].layout.segments()[segment].padded_elems()};
}

View ReplicatedParameters::whole(std::size_t unit, std::size_t segment) const {
  return units_[unit].parameter_view(segment, base_[unit]);
}

void ReplicatedParameters::await(std::size_t unit) {
  await_arrival(unit, world_.compute_stream());
  world_.compute_stream().wait_for(ready_[unit].get());
}

void ReplicatedParameters::updated(std::span<const std::size_t> forward) {
  if (optimizer_ == Holding::replicated) { return; }
  order_gather_after_compute();
  for (const std::size_t u : forward) {
    Batch batch{"gather " + units_[u].name};
    const auto segments = units_[u].layout.segments();
    for (std::size_t s = 0; s < segments.size(); ++s) {
      if (!segments[s].trainable() || segments[s].padded_elems() == 0) { continue; }
      const View all = whole(u, s);
      const Range own = place_.kept(segments[s]);
      batch.all_gather(all.slice(own.first, own.elems), all);
    }
    if (batch.ops().empty()) { continue; }
    await_arrival(u, gather_.stream);
    submit("gather", u, std::move(batch));
    gather_.stream.record(ready_[u].get());
  }
}

}  // namespace tessera::engine
