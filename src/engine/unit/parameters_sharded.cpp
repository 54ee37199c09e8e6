#include "engine/unit/parameters_sharded.hpp"

#include <utility>

namespace tessera::engine {

View ShardedParameters::resident(std::size_t segment) const {
  return plan().parameter_shard_view(segment, shard_);
}

View ShardedParameters::whole(std::size_t segment) const {
  return plan().parameter_view(segment, slot_->data());
}

bool ShardedParameters::shares_slots_with(const ParameterHome& other) const {
  const auto* const same = dynamic_cast<const ShardedParameters*>(&other);
  return same != nullptr && &same->ring_ == &ring_;
}

void ShardedParameters::gather() {
  slot_ = &ring_.acquire(plan().name, plan().parameter_bytes(), lane().stream());
  await_arrival(lane().stream());

  Batch batch{"gather " + plan().name};
  for (std::size_t s = 0; s < plan().segments(); ++s) {
    if (whole(s).elems > 0) { batch.all_gather(resident(s), whole(s)); }
  }
  if (!batch.ops().empty()) { lane().submit("gather", plan().name, std::move(batch)); }
  lane().stream().record(slot_->produced());
}

void ShardedParameters::await() {
  compute().wait_for(slot_->produced());
}

void ShardedParameters::release(Stream reader) {
  if (plan().residence != Residence::update) { give_back(reader); }
}

// What was gathered are the parameters before the update.
void ShardedParameters::drop_stale() {
  if (plan().residence == Residence::update && held()) { give_back(compute()); }
}

void ShardedParameters::give_back(Stream reader) {
  lane().journal().issue("reshard", plan().name);
  ring_.release(*slot_, reader);
  slot_ = nullptr;
}

void ShardedParameters::require_slots_free() const {
  if (plan().residence != Residence::update) { ring_.require_all_free(); }
}

}  // namespace tessera::engine
