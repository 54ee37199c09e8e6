#include "engine/unit/gradient_pool.hpp"

#include <algorithm>
#include <numeric>

#include "engine/plan/slot_plan.hpp"
#include "engine/unit/gradients_direct.hpp"
#include "engine/unit/gradients_in_slots.hpp"

namespace tessera::engine {
namespace {

bool reduces_in_slots(const ModelOptions& options) {
  const bool every = resolve(options.accumulate_mode, options.strategy) == AccumulateMode::every;
  if (options.accumulate > 1) { return every; }
  return traits_of(options.strategy).gradients == Holding::sharded;
}

/// Finished units are all-reduced together if they stay in place and travel in their own dtype.
BucketSizes bucket_sizes(const UnitPlans& plans, const ModelOptions& options) {
  const bool in_place = !reduces_in_slots(options);
  const bool narrows =
      std::ranges::any_of(plans, [](const UnitPlan& plan) { return plan.wire_bytes() > 0; });
  const bool all_reduces = traits_of(options.strategy).optimizer == Holding::replicated;
  if (!in_place || !all_reduces || narrows) { return {}; }
  return {options.tuning.first_bucket_bytes, options.bucket_bytes};
}

}  // namespace

GradientPool::GradientPool(World& world, const UnitPlans& plans, Journal& journal,
                           const ModelOptions& options, const Sharding& group, int pending)
    : world_{world},
      plans_{plans},
      traits_{traits_of(options.strategy)},
      in_slots_{reduces_in_slots(options)},
      borrows_{traits_.gradients == Holding::rank0 && world.rank() != 0},
      most_slots_{std::max(options.tuning.gradient_slots, pending)},
      poison_{gradient_poison(world, options.checks)},
      lane_{world, group},
      bucket_{journal, lane_, bucket_sizes(plans, options)} {
  const SlotPlan wire = SlotPlan::make(plans, /*shared_slots=*/1, &UnitPlan::wire_bytes);
  wire_ = Arena{
      world.allocate(Category::reduce, wire.bytes(), "gradients on the wire", BufferUse::parts)};
  wire_rings_ = wire.cut(world, Category::reduce, wire_, world.options().testing.poison);
  wire_ring_ = wire.ring_of_unit;

  std::size_t bytes = 0;
  for (const UnitPlan& plan : plans) { bytes += Arena::need(kept_bytes(plan)); }
  kept_ = borrows_ ? Arena{world.allocate(Category::reduce, bytes, "gradients for rank 0")}
                   : Arena{world.allocate(Category::gradients, bytes, "gradients")};

  make_host(options, group);
  if (in_slots_) { take_slots(); }
}

void GradientPool::take_slots() {
  const SlotPlan slots = SlotPlan::make(plans_, most_slots_, &UnitPlan::gradient_bytes);
  slots_ =
      Arena{world_.allocate(Category::reduce, slots.bytes(), "gradient slots", BufferUse::parts)};
  rings_ = slots.cut(world_, Category::reduce, slots_, poison_);
  ring_ = slots.ring_of_unit;
}

SlotRing& GradientPool::late_slots(std::size_t unit) {
  if (rings_.empty()) { take_slots(); }
  return rings_[ring_[unit]];
}

std::size_t GradientPool::kept_bytes(const UnitPlan& plan) const {
  if (in_slots_ && (plan.updated_on_host() || borrows_)) { return 0; }
  const bool shards = in_slots_ && traits_.gradients == Holding::sharded;
  return shards ? plan.gradient_shard_bytes() : plan.gradient_bytes();
}

void GradientPool::make_host(const ModelOptions& options, const Sharding& group) {
  if (std::ranges::none_of(plans_, &UnitPlan::updated_on_host)) { return; }
  HostGradientPool::Options host{.norms = in_slots_,
                                 .accumulate = in_slots_ && options.accumulate > 1,
                                 .shards = {group.normed_shard()},
                                 .all_shards = group.data_ranks()};
  if (traits_.optimizer == Holding::rank0) {
    host.shards.resize(static_cast<std::size_t>(host.all_shards));
    std::iota(host.shards.begin(), host.shards.end(), 0);
  }
  host_ = std::make_unique<HostGradientPool>(world_, plans_, host);
}

std::unique_ptr<GradientHome> GradientPool::make_home(std::size_t unit) {
  const UnitPlan& plan = plans_[unit];
  const std::size_t bytes = kept_bytes(plan);
  const GradientHome::Parts parts{
      .plan = plan,
      .lane = lane_,
      .traits = traits_,
      .wire_ring = plan.wire_bytes() > 0 ? &wire_rings_[wire_ring_[unit]] : nullptr,
      .host = plan.updated_on_host() ? &host_->of(unit) : nullptr,
      .kept = bytes > 0 ? kept_.take(bytes) : nullptr};
  if (in_slots_) { return std::make_unique<GradientsInSlots>(parts, rings_[ring_[unit]]); }
  return std::make_unique<DirectGradients>(
      parts, [this, unit]() -> SlotRing& { return late_slots(unit); });
}

void GradientPool::settle() {
  bucket_.flush();
  lane_.settle();
  if (host_) { host_->settle(world_.compute_stream()); }
}

}  // namespace tessera::engine
