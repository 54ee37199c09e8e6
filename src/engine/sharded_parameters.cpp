#include "engine/sharded_parameters.hpp"

#include "engine/slot_plan.hpp"

namespace tessera::engine {

ShardedParameters::ShardedParameters(World& world, const Units& units, Journal& journal,
                                     const Sharding& group, int ring_slots, SlotPoison poison)
    : ParameterStore{world, units, journal, group.gather()},
      group_{group},
      slot_(units.size(), nullptr) {
  std::size_t bytes = 0;
  for (const UnitState& unit : units) { bytes += Arena::need(unit.parameter_shard_bytes()); }
  shards_ = Arena{world.allocate(Category::parameters, bytes, "parameter shards")};
  for (const UnitState& unit : units) {
    shard_base_.push_back(shards_.take(unit.parameter_shard_bytes()));
  }

  const SlotPlan plan =
      SlotPlan::make(units, ring_slots, &UnitState::parameter_bytes, &UnitState::has_own_slot);
  slots_ = Arena{world.allocate(Category::gather, plan.bytes(), "gather slots", BufferUse::parts)};
  rings_ = plan.cut(world, Category::gather, slots_, poison);
  ring_ = plan.ring_of_unit;
}

View ShardedParameters::resident(std::size_t unit, std::size_t segment) const {
  return units_[unit].parameter_shard_view(segment, shard_base_[unit]);
}

Range ShardedParameters::resident_range(std::size_t unit, std::size_t segment) const {
  return group_.kept(units_[unit].layout.segments()[segment]);
}

View ShardedParameters::whole(std::size_t unit, std::size_t segment) const {
  return units_[unit].parameter_view(segment, slot_[unit]->data());
}

void ShardedParameters::fetch(std::size_t unit) {
  const UnitState& state = units_[unit];
  slot_[unit] = &rings_[ring_[unit]].acquire(state.name, state.parameter_bytes(), gather_.stream);
  await_arrival(unit, gather_.stream);

  Batch batch{"gather " + state.name};
  for (std::size_t s = 0; s < state.layout.segments().size(); ++s) {
    if (state.layout.segments()[s].padded_elems() == 0) { continue; }
    batch.all_gather(resident(unit, s), whole(unit, s));
  }
  if (!batch.ops().empty()) { submit("gather", unit, std::move(batch)); }
  gather_.stream.record(slot_[unit]->produced());
}

void ShardedParameters::await(std::size_t unit) {
  world_.compute_stream().wait_for(slot_[unit]->produced());
}

void ShardedParameters::release(std::size_t unit, Stream reader) {
  if (units_[unit].residence != Residence::update) { give_back(unit, reader); }
}

// What has been gathered is the parameters before the update.
void ShardedParameters::updated(std::span<const std::size_t> /*forward*/) {
  for (std::size_t u = 0; u < units_.size(); ++u) {
    const bool stayed = units_[u].residence == Residence::update && held(u);
    if (stayed) { give_back(u, world_.compute_stream()); }
  }
  order_gather_after_compute();
}

void ShardedParameters::give_back(std::size_t unit, Stream reader) {
  journal_.issue("reshard", units_[unit].name);
  rings_[ring_[unit]].release(*slot_[unit], reader);
  slot_[unit] = nullptr;
}

void ShardedParameters::require_slots_free() const {
  for (std::size_t u = 0; u < units_.size(); ++u) {
    if (units_[u].residence != Residence::update) { ring_of(u).require_all_free(); }
  }
}

}  // namespace tessera::engine
