#include <algorithm>
#include <numeric>

#include "engine/gradient_store.hpp"

// What of the gradients of offloaded units is in the host pool, how it comes there, and how it
// comes back to be exported.
namespace tessera::engine {

void GradientStore::make_host(const ModelOptions& options) {
  if (std::ranges::none_of(units_, &UnitState::offloaded)) { return; }
  HostGradients::Options host{
      .updated = [this](std::size_t unit, std::size_t s) { return resident_range(unit, s); },
      .norms = in_slots_,
      .accumulate = in_slots_ && options.accumulate > 1,
      .shards = {group_.normed_shard()}};
  if (traits_.optimizer == Holding::rank0) {
    host.shards.resize(static_cast<std::size_t>(world_.size()));
    std::iota(host.shards.begin(), host.shards.end(), 0);
  }
  host_ = std::make_unique<HostGradients>(world_, units_, host);
}

void GradientStore::take_to_host(std::size_t unit) {
  const auto updated = [&](std::size_t segment) {
    const Range range = resident_range(unit, segment);
    return whole(unit, segment).slice(range.first, range.elems);
  };
  const bool in_slot = slot_[unit] != nullptr;
  host_->take(unit, group_.reduce().stream, updated, !in_slot || !started_[unit]);
  if (reduced_[unit]) { host_->complete(unit); }
  if (!in_slot) { return; }
  started_[unit] = true;
  rings_[ring_[unit]].release(*slot_[unit], world_.offload_stream(CopyLane::states));
  slot_[unit] = nullptr;
}

// Into its place in the slot, once all of it is in the host pool.
void GradientStore::bring_from_host(std::size_t unit) {
  const Stream reduce = group_.reduce().stream;
  const Stream lane = world_.offload_stream(CopyLane::states);
  const Stream host = world_.host_stream();
  for (const Stream before : {reduce, host}) {
    before.record(reduce_mark_.get());
    lane.wait_for(reduce_mark_.get());
  }
  for (std::size_t s = 0; s < units_[unit].layout.segments().size(); ++s) {
    const View from = host_->resident(unit, s);
    if (from.elems == 0) { continue; }
    const View to = whole(unit, s).slice(resident_range(unit, s).first, from.elems);
    world_.reload(to.data, from.data, from.bytes(), units_[unit].name, CopyLane::states);
  }
  lane.record(reduce_mark_.get());
  reduce.wait_for(reduce_mark_.get());
}

}  // namespace tessera::engine
