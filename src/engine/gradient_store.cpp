#include "engine/gradient_store.hpp"

#include <algorithm>
#include <utility>

#include "engine/slot_plan.hpp"
#include "kernels/table.hpp"

namespace tessera::engine {
namespace {

// At least: one is filled by backward while the other is being reduced.
constexpr int kReduceSlots = 2;

bool reduces_in_slots(const ModelOptions& options) {
  const bool every = resolve(options.accumulate_mode, options.strategy) == AccumulateMode::every;
  if (options.accumulate > 1) { return every; }
  return traits_of(options.strategy).gradients == Holding::sharded;
}

}  // namespace

GradientStore::GradientStore(World& world, const Units& units, Journal& journal,
                             const ModelOptions& options, const Sharding& group, int pending)
    : world_{world},
      units_{units},
      journal_{journal},
      traits_{traits_of(options.strategy)},
      group_{group},
      in_slots_{reduces_in_slots(options)},
      bucket_bytes_{options.bucket_bytes},
      next_bucket_bytes_{options.first_bucket_bytes},
      first_bucket_bytes_{options.first_bucket_bytes},
      base_(units.size(), nullptr),
      slot_(units.size(), nullptr),
      wire_{world, units},
      open_(units.size(), false),
      started_(units.size(), false),
      reduced_(units.size(), false),
      compute_mark_{world.device().make_event()},
      reduce_mark_{world.device().make_event()} {
  const bool keeps_shards = in_slots_ && traits_.gradients == Holding::sharded;
  const bool borrows = traits_.gradients == Holding::rank0 && world.rank() != 0;
  const auto kept_bytes = [&](const UnitState& unit) {
    if (in_slots_ && unit.offloaded) { return std::size_t{0}; }
    if (keeps_shards) { return unit.gradient_shard_bytes(); }
    return borrows && in_slots_ ? std::size_t{0} : unit.gradient_bytes();
  };
  std::size_t bytes = 0;
  for (const UnitState& unit : units) { bytes += Arena::need(kept_bytes(unit)); }
  arena_ = borrows ? Arena{world.allocate(Category::reduce, bytes, "gradients for rank 0")}
                   : Arena{world.allocate(Category::gradients, bytes, "gradients")};
  for (std::size_t u = 0; u < units.size(); ++u) {
    if (kept_bytes(units[u]) > 0) { base_[u] = arena_.take(kept_bytes(units[u])); }
  }

  make_host(options);
  if (!in_slots_) { return; }
  const SlotPlan plan =
      SlotPlan::make(units, std::max(kReduceSlots, pending), &UnitState::gradient_bytes);
  slot_arena_ =
      Arena{world.allocate(Category::reduce, plan.bytes(), "gradient slots", BufferUse::parts)};
  rings_ = plan.cut(world, Category::reduce, slot_arena_, gradient_poison(world, options.checks));
  ring_ = plan.ring_of_unit;
}

void* GradientStore::base_of(std::size_t unit) const {
  return slot_[unit] != nullptr ? slot_[unit]->data() : base_[unit];
}

View GradientStore::whole(std::size_t unit, std::size_t segment) const {
  return units_[unit].gradient_view(segment, base_of(unit));
}

Range GradientStore::resident_range(std::size_t unit, std::size_t segment) const {
  const SegmentLayout& layout = units_[unit].layout.segments()[segment];
  if (!layout.trainable()) { return {}; }
  switch (traits_.optimizer) {
    case Holding::sharded:
      return group_.kept(layout);
    case Holding::rank0:
      return {0, world_.rank() == 0 ? layout.padded_elems() : 0};
    case Holding::replicated:
      break;
  }
  return {0, layout.padded_elems()};
}

View GradientStore::resident(std::size_t unit, std::size_t segment) const {
  const Range range = resident_range(unit, segment);
  if (range.elems == 0 || base_[unit] == nullptr) {
    return units_[unit].gradient_view(segment, nullptr);
  }
  if (in_slots_ && traits_.gradients == Holding::sharded) {
    return units_[unit].gradient_shard_view(segment, base_[unit]);
  }
  return units_[unit].gradient_view(segment, base_[unit]).slice(range.first, range.elems);
}

bool GradientStore::can_open(std::size_t unit) const {
  if (open_[unit] || !in_slots_ || !units_[unit].trainable()) { return true; }
  return rings_[ring_[unit]].free() > 0;
}

std::string GradientStore::slot_owners(std::size_t unit) const {
  std::string names;
  for (std::size_t u = 0; u < units_.size(); ++u) {
    if (slot_[u] == nullptr || ring_[u] != ring_[unit]) { continue; }
    names += (names.empty() ? "'" : ", '") + units_[u].name + "'";
  }
  return names;
}

void GradientStore::open(std::size_t unit, GradientInit content) {
  const UnitState& state = units_[unit];
  open_[unit] = true;
  if (!state.trainable()) { return; }
  if (in_slots_) {
    slot_[unit] =
        &rings_[ring_[unit]].acquire(state.name, state.gradient_bytes(), world_.compute_stream());
    zero(unit, content);
  } else if (!started_[unit]) {
    zero(unit, content);
    started_[unit] = true;
  }
}

void GradientStore::zero(std::size_t unit, GradientInit content) {
  const UnitState& state = units_[unit];
  for (std::size_t s = 0; s < state.layout.segments().size(); ++s) {
    const View all = whole(unit, s);
    if (all.elems == 0) { continue; }
    if (content == GradientInit::zeroed) {
      world_.device().fill(all.data, 0, all.bytes(), world_.compute_stream());
      continue;
    }
    // The trainer overwrites its own elements; what lies between must not reach the norm.
    for (const Range gap : state.layout.segments()[s].padding()) {
      const View hole = all.slice(gap.first, gap.elems);
      world_.device().fill(hole.data, 0, hole.bytes(), world_.compute_stream());
    }
  }
}

void GradientStore::complete(std::size_t unit, bool last_micro_batch) {
  open_[unit] = false;
  if (!units_[unit].trainable()) {
    reduced_[unit] = true;
    return;
  }
  if (!in_slots_ && !last_micro_batch) { return; }
  reduced_[unit] = last_micro_batch;
  reduce(unit);
}

void GradientStore::reduce(std::size_t unit) {
  journal_.issue("reduce", units_[unit].name);
  bucket_.push_back(unit);
  bucket_filled_ += units_[unit].gradient_bytes();
  const bool in_buckets =
      !in_slots_ && traits_.optimizer == Holding::replicated && !wire_.narrows();
  if (in_buckets && bucket_filled_ < next_bucket_bytes_) { return; }
  flush();
}

void GradientStore::flush() {
  if (bucket_.empty()) { return; }
  std::string label = "reduce";
  for (const std::size_t unit : bucket_) { label += " " + units_[unit].name; }
  Batch batch{label};
  Batch across{label + " across groups"};
  order_reduce_after_compute();
  for (const std::size_t unit : bucket_) {
    load_wire(unit);
    for (std::size_t s = 0; s < units_[unit].layout.segments().size(); ++s) {
      append_reduction(batch, across, unit, s);
    }
  }
  submit(std::move(batch), group_.reduce());
  if (group_.across()) { submit(std::move(across), *group_.across()); }
  for (const std::size_t unit : bucket_) {
    unload_wire(unit);
    keep(unit);
  }
  bucket_.clear();
  bucket_filled_ = 0;
  next_bucket_bytes_ = bucket_bytes_;
}

void GradientStore::submit(Batch batch, Channel channel) {
  if (!batch.ops().empty()) { channel.communicator.submit(std::move(batch), channel.stream); }
}

void GradientStore::append_reduction(Batch& batch, Batch& across, std::size_t unit,
                                     std::size_t segment) const {
  const View all = wire_.view(unit, segment, whole(unit, segment));
  if (all.elems == 0) { return; }
  switch (traits_.optimizer) {
    case Holding::rank0:
      batch.reduce(all, ReduceOp::sum, 0);
      return;
    case Holding::replicated:
      batch.all_reduce(all);
      return;
    case Holding::sharded:
      break;
  }
  const Range kept = resident_range(unit, segment);
  const View own = all.slice(kept.first, kept.elems);
  batch.reduce_scatter(all, own);
  if (group_.across()) { across.all_reduce(own); }
}

void GradientStore::load_wire(std::size_t unit) {
  wire_.load(unit, [&](std::size_t segment) { return whole(unit, segment); });
}

void GradientStore::unload_wire(std::size_t unit) {
  wire_.unload(
      unit, [&](std::size_t segment) { return whole(unit, segment); },
      [&](std::size_t segment) { return resident_range(unit, segment); });
}

void GradientStore::keep(std::size_t unit) {
  if (units_[unit].offloaded) { return take_to_host(unit); }
  if (slot_[unit] != nullptr) { accumulate_and_release(unit); }
}

void GradientStore::accumulate_and_release(std::size_t unit) {
  const Stream stream = group_.reduce().stream;
  for (std::size_t s = 0; s < units_[unit].layout.segments().size(); ++s) {
    const View to = resident(unit, s);
    if (to.elems == 0) { continue; }
    const View from = whole(unit, s).slice(resident_range(unit, s).first, to.elems);
    if (started_[unit]) {
      world_.kernels().accumulate(to.values(), from.values(), to.elems, stream);
    } else {
      world_.device().copy(to.data, from.data, to.bytes(), stream);
    }
  }
  started_[unit] = true;
  rings_[ring_[unit]].release(*slot_[unit], stream);
  slot_[unit] = nullptr;
}

void GradientStore::order_reduce_after_compute() {
  world_.compute_stream().record(compute_mark_.get());
  group_.reduce().stream.wait_for(compute_mark_.get());
}

void GradientStore::settle() {
  flush();
  group_.reduce().stream.record(reduce_mark_.get());
  world_.compute_stream().wait_for(reduce_mark_.get());
  if (host_ != nullptr) { host_->settle(world_.compute_stream()); }
}

void GradientStore::begin_step() {
  started_.assign(units_.size(), false);
  reduced_.assign(units_.size(), false);
  next_bucket_bytes_ = first_bucket_bytes_;
}

void GradientStore::begin_export(std::size_t unit) {
  const UnitState& state = units_[unit];
  const bool needs_slot =
      in_slots_ && (traits_.gradients == Holding::sharded || base_[unit] == nullptr);
  const bool is_whole = traits_.optimizer == Holding::replicated && !needs_slot;
  if (!state.trainable() || is_whole) { return; }
  order_reduce_after_compute();
  const Channel channel = group_.reduce();
  if (needs_slot) {
    slot_[unit] = &rings_[ring_[unit]].acquire(state.name, state.gradient_bytes(), channel.stream);
    if (state.offloaded) { bring_from_host(unit); }
  }
  Batch batch{"export " + state.name};
  for (std::size_t s = 0; s < state.layout.segments().size(); ++s) {
    const View all = whole(unit, s);
    if (all.elems == 0) { continue; }
    if (traits_.optimizer == Holding::rank0) {
      batch.broadcast(all, 0);
    } else if (traits_.optimizer == Holding::sharded) {
      const Range own = resident_range(unit, s);
      const bool in_place = !needs_slot || state.offloaded;
      batch.all_gather(in_place ? all.slice(own.first, own.elems) : resident(unit, s), all);
    }
  }
  submit(std::move(batch), channel);
  settle();
}

View GradientStore::exported(std::size_t unit, std::size_t segment) const {
  return whole(unit, segment);
}

void GradientStore::end_export(std::size_t unit) {
  if (slot_[unit] == nullptr) { return; }
  rings_[ring_[unit]].release(*slot_[unit], world_.compute_stream());
  slot_[unit] = nullptr;
}

void GradientStore::require_slots_free() const {
  for (const SlotRing& ring : rings_) { ring.require_all_free(); }
}

std::size_t GradientStore::persistent_bytes() const noexcept {
  const bool borrows = traits_.gradients == Holding::rank0 && world_.rank() != 0;
  return borrows ? 0 : arena_.bytes();
}

}  // namespace tessera::engine
