#include "engine/unit/parameter_home.hpp"

#include <algorithm>

#include "engine/plan/slot_plan.hpp"
#include "engine/unit/parameters_rank0.hpp"
#include "engine/unit/parameters_replicated.hpp"
#include "engine/unit/parameters_sharded.hpp"

namespace tessera::engine {

ParameterHome::ParameterHome(const UnitPlan& plan, GatherLane& lane) : plan_{plan}, lane_{lane} {
  if (plan.state_on_host()) { arrival_ = lane.world().device().make_event(); }
}

int most_prefetch(const ModelOptions& options) noexcept {
  return std::max(options.prefetch, options.tuning.prefetch_backward.value_or(options.prefetch));
}

ParameterPool::ParameterPool(World& world, const UnitPlans& plans, Journal& journal,
                             const ModelOptions& options, const Sharding& group)
    : plans_{plans},
      on_rank0_{traits_of(options.strategy).parameters == Holding::rank0},
      borrows_{on_rank0_ && world.rank() != 0},
      lane_{world, journal, group.gather()} {
  const bool sharded = std::ranges::any_of(plans, &UnitPlan::is_gathered);
  std::size_t bytes = 0;
  for (const UnitPlan& plan : plans) {
    bytes +=
        Arena::need(plan.is_gathered() ? plan.parameter_shard_bytes() : plan.parameter_bytes());
  }
  if (borrows_) {
    kept_ = Arena{world.allocate(Category::gather, bytes, "replica of rank 0's parameters")};
  } else {
    kept_ = Arena{
        world.allocate(Category::parameters, bytes, sharded ? "parameter shards" : "parameters")};
  }
  if (sharded) { take_slots(options); }
}

// Units that are released after each use share rings; the others have slots of their own.
void ParameterPool::take_slots(const ModelOptions& options) {
  World& world = lane_.world();
  const int at_once = most_prefetch(options) + 1;
  const auto need_of = [](const UnitPlan& unit) {
    if (!unit.is_gathered()) { return SlotNeed::none; }
    return unit.has_own_slot() ? SlotNeed::own : SlotNeed::shared;
  };
  const SlotPlan plan = SlotPlan::make(
      plans_, [=](const SlotPlan::Among&) { return at_once; }, &UnitPlan::parameter_bytes, need_of);
  slots_ = Arena{world.allocate(Category::gather, plan.bytes(), "gather slots", BufferUse::parts)};
  rings_ = plan.cut(world, Category::gather, slots_, parameter_poison(world, options.checks));
  ring_ = plan.ring_of_unit;
}

std::unique_ptr<ParameterHome> ParameterPool::make_home(std::size_t unit) {
  const UnitPlan& plan = plans_[unit];
  switch (plan.traits.parameters) {
    case Holding::rank0:
      return std::make_unique<Rank0Parameters>(plan, lane_, kept_.take(plan.parameter_bytes()));
    case Holding::sharded:
      return std::make_unique<ShardedParameters>(
          plan, lane_, kept_.take(plan.parameter_shard_bytes()), rings_[ring_[unit]]);
    case Holding::replicated:
      break;
  }
  return std::make_unique<ReplicatedParameters>(plan, lane_, kept_.take(plan.parameter_bytes()),
                                                plan.traits.optimizer);
}

std::size_t ParameterPool::persistent_bytes() const noexcept {
  return borrows_ ? 0 : kept_.bytes();
}

}  // namespace tessera::engine
