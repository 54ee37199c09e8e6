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
      traits_{traits_of(options.strategy)},
      borrows_{traits_.parameters == Holding::rank0 && world.rank() != 0},
      lane_{world, journal, group.gather()} {
  const bool sharded = traits_.parameters == Holding::sharded;
  std::size_t bytes = 0;
  for (const UnitPlan& plan : plans) {
    bytes += Arena::need(sharded ? plan.parameter_shard_bytes() : plan.parameter_bytes());
  }
  if (borrows_) {
    kept_ = Arena{world.allocate(Category::gather, bytes, "replica of rank 0's parameters")};
  } else {
    kept_ = Arena{
        world.allocate(Category::parameters, bytes, sharded ? "parameter shards" : "parameters")};
  }
  if (sharded) { take_slots(options); }
}

// Units that are released after each use share a ring that fits the largest of them; the others
// have slots of their own.
void ParameterPool::take_slots(const ModelOptions& options) {
  World& world = lane_.world();
  const SlotPlan plan = SlotPlan::make(plans_, most_prefetch(options) + 1,
                                       &UnitPlan::parameter_bytes, &UnitPlan::has_own_slot);
  slots_ = Arena{world.allocate(Category::gather, plan.bytes(), "gather slots", BufferUse::parts)};
  rings_ = plan.cut(world, Category::gather, slots_, parameter_poison(world, options.checks));
  ring_ = plan.ring_of_unit;
}

std::unique_ptr<ParameterHome> ParameterPool::make_home(std::size_t unit) {
  const UnitPlan& plan = plans_[unit];
  switch (traits_.parameters) {
    case Holding::rank0:
      return std::make_unique<Rank0Parameters>(plan, lane_, kept_.take(plan.parameter_bytes()));
    case Holding::sharded:
      return std::make_unique<ShardedParameters>(
          plan, lane_, kept_.take(plan.parameter_shard_bytes()), rings_[ring_[unit]]);
    case Holding::replicated:
      break;
  }
  return std::make_unique<ReplicatedParameters>(plan, lane_, kept_.take(plan.parameter_bytes()),
                                                traits_.optimizer);
}

Category ParameterPool::category() const noexcept {
  const bool gathered = traits_.parameters == Holding::sharded || borrows_;
  return gathered ? Category::gather : Category::parameters;
}

std::size_t ParameterPool::persistent_bytes() const noexcept {
  return borrows_ ? 0 : kept_.bytes();
}

}  // namespace tessera::engine
