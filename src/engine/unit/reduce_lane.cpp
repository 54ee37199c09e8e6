#include "engine/unit/reduce_lane.hpp"

#include <utility>

namespace tessera::engine {
namespace {

void submit_to(const Channel& channel, Batch batch) {
  if (!batch.ops().empty()) { channel.communicator.submit(std::move(batch), channel.stream); }
}

}  // namespace

ReduceLane::ReduceLane(World& world, const Sharding& group)
    : world_{world},
      group_{group},
      compute_mark_{world.device().make_event()},
      reduce_mark_{world.device().make_event()} {}

void ReduceLane::submit(Batch batch) {
  submit_to(group_.reduce(), std::move(batch));
}

void ReduceLane::submit(Batch batch, Batch across) {
  submit(std::move(batch));
  if (group_.across()) { submit_to(*group_.across(), std::move(across)); }
}

void ReduceLane::order_after_compute() {
  world_.compute_stream().record(compute_mark_.get());
  stream().wait_for(compute_mark_.get());
}

void ReduceLane::order_after(Stream before) {
  before.record(reduce_mark_.get());
  stream().wait_for(reduce_mark_.get());
}

void ReduceLane::order_before(Stream after) {
  stream().record(reduce_mark_.get());
  after.wait_for(reduce_mark_.get());
}

}  // namespace tessera::engine
