#include "engine/unit/gradient_pool.hpp"

#include <algorithm>
#include <numeric>

#include "engine/unit/gradients_direct.hpp"
#include "engine/unit/gradients_in_slots.hpp"

namespace tessera::engine {
namespace {

bool accumulates(const ModelOptions& options, AccumulateMode mode) {
  return options.accumulate > 1 && resolve(options.accumulate_mode, options.strategy) == mode;
}

/// Finished units are all-reduced together if they stay in place and travel in their own dtype.
BucketSizes bucket_sizes(const UnitPlans& plans, const ModelOptions& options) {
  const bool in_place = !accumulates(options, AccumulateMode::every);
  const bool narrows =
      std::ranges::any_of(plans, [](const UnitPlan& plan) { return plan.wire_bytes() > 0; });
  const bool all_reduces = traits_of(options.strategy).optimizer == Holding::replicated;
  if (!in_place || !all_reduces || narrows) { return {}; }
  return {options.tuning.first_bucket_bytes, options.bucket_bytes};
}

}  // namespace

GradientPool::GradientPool(World& world, const UnitPlans& plans, Journal& journal,
                           const ModelOptions& options, const Sharding& group,
                           const UseOrder& order)
    : world_{world},
      plans_{plans},
      every_{accumulates(options, AccumulateMode::every)},
      deferred_{accumulates(options, AccumulateMode::deferred)},
      borrows_{traits_of(options.strategy).gradients == Holding::rank0 && world.rank() != 0},
      late_at_once_{options.tuning.gradient_slots},
      poison_{gradient_poison(world, options.checks)},
      lane_{world, group},
      bucket_{journal, lane_, bucket_sizes(plans, options)} {
  const SlotPlan wire =
      SlotPlan::make(plans, [](const SlotPlan::Among&) { return 1; }, &UnitPlan::wire_bytes);
  wire_ = Arena{
      world.allocate(Category::reduce, wire.bytes(), "gradients on the wire", BufferUse::parts)};
  wire_rings_ = wire.cut(world, Category::reduce, wire_, world.options().testing.poison);
  wire_ring_ = wire.ring_of_unit;

  std::size_t bytes = 0;
  for (const UnitPlan& plan : plans) { bytes += Arena::need(kept_bytes(plan)); }
  kept_ = borrows_ ? Arena{world.allocate(Category::reduce, bytes, "gradients for rank 0")}
                   : Arena{world.allocate(Category::gradients, bytes, "gradients")};

  make_host(options, group);
  if (std::ranges::none_of(plans, [this](const UnitPlan& plan) { return in_slots(plan); })) {
    return;
  }
  const auto pending = [&](const SlotPlan::Among& among) {
    const auto counts = [&](std::size_t unit) {
      return among(unit) && !plans[unit].is_root() && plans[unit].trainable();
    };
    return std::max(options.tuning.gradient_slots, order.most_pending(counts));
  };
  const auto need_of = [this](const UnitPlan& plan) {
    return in_slots(plan) ? root_or_shared(plan) : SlotNeed::none;
  };
  slots_ = take(SlotPlan::make(plans, pending, &UnitPlan::gradient_bytes, need_of));
}

GradientPool::Slots GradientPool::take(const SlotPlan& plan) {
  Slots slots;
  slots.arena =
      Arena{world_.allocate(Category::reduce, plan.bytes(), "gradient slots", BufferUse::parts)};
  slots.rings = plan.cut(world_, Category::reduce, slots.arena, poison_);
  slots.ring_of_unit = plan.ring_of_unit;
  return slots;
}

SlotRing& GradientPool::late_slots(std::size_t unit) {
  if (late_slots_.rings.empty()) {
    const auto need_of = [this](const UnitPlan& plan) {
      return in_slots(plan) ? SlotNeed::none : root_or_shared(plan);
    };
    late_slots_ = take(SlotPlan::make(
        plans_, [this](const SlotPlan::Among&) { return late_at_once_; }, &UnitPlan::gradient_bytes,
        need_of));
  }
  return late_slots_.rings[late_slots_.ring_of_unit[unit]];
}

bool GradientPool::in_slots(const UnitPlan& plan) const {
  return every_ || (!deferred_ && plan.traits.gradients == Holding::sharded);
}

std::size_t GradientPool::kept_bytes(const UnitPlan& plan) const {
  if (in_slots(plan) && (plan.updated_on_host() || borrows_)) { return 0; }
  const bool shards = in_slots(plan) && plan.traits.gradients == Holding::sharded;
  return shards ? plan.gradient_shard_bytes() : plan.gradient_bytes();
}

void GradientPool::make_host(const ModelOptions& options, const Sharding& group) {
  const auto offloaded = std::ranges::find_if(plans_, &UnitPlan::updated_on_host);
  if (offloaded == plans_.end()) { return; }
  HostGradientPool::Options host{.norms = in_slots(*offloaded),  // as all offloaded ones
                                 .accumulate = every_,
                                 .shards = {group.normed_shard()},
                                 .all_shards = group.data_ranks()};
  if (traits_of(options.strategy).optimizer == Holding::rank0) {
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
      .traits = plan.traits,
      .wire_ring = plan.wire_bytes() > 0 ? &wire_rings_[wire_ring_[unit]] : nullptr,
      .host = plan.updated_on_host() ? &host_->of(unit) : nullptr,
      .kept = bytes > 0 ? kept_.take(bytes) : nullptr};
  if (in_slots(plan)) {
    return std::make_unique<GradientsInSlots>(parts, slots_.rings[slots_.ring_of_unit[unit]]);
  }
  return std::make_unique<DirectGradients>(
      parts, [this, unit]() -> SlotRing& { return late_slots(unit); });
}

void GradientPool::settle() {
  bucket_.flush();
  lane_.settle();
  if (host_) { host_->settle(world_.compute_stream()); }
}

}  // namespace tessera::engine
