#include "engine/unit/reduce_lane.hpp"

#include <string>
#include <utility>

#include "engine/unit/gradient_home.hpp"

namespace tessera::engine {
namespace {

void submit_to(const Channel& channel, Batch batch) {
  if (!batch.ops().empty()) { channel.communicator.submit(std::move(batch), channel.stream); }
}

}  // namespace

ReduceLane::ReduceLane(World& world, Journal& journal, const Sharding& group,
                       const BucketSizes* buckets)
    : world_{world},
      journal_{journal},
      group_{group},
      in_buckets_{buckets != nullptr},
      sizes_{buckets != nullptr ? *buckets : BucketSizes{}},
      bucket_bytes_{sizes_.first},
      compute_mark_{world.device().make_event()},
      reduce_mark_{world.device().make_event()} {}

void ReduceLane::reduce(GradientHome& gradients) {
  journal_.issue("reduce", gradients.unit_name());
  waiting_.push_back(&gradients);
  waiting_bytes_ += gradients.bytes();
  if (in_buckets_ && waiting_bytes_ < bucket_bytes_) { return; }
  flush();
}

void ReduceLane::flush() {
  if (waiting_.empty()) { return; }
  std::string label = "reduce";
  for (const GradientHome* const gradients : waiting_) { label += " " + gradients->unit_name(); }
  Batch batch{label};
  Batch across{label + " across groups"};
  order_after_compute();
  for (GradientHome* const gradients : waiting_) { gradients->append_reductions(batch, across); }
  submit(std::move(batch));
  if (group_.across()) { submit_to(*group_.across(), std::move(across)); }
  for (GradientHome* const gradients : waiting_) { gradients->keep(); }
  waiting_.clear();
  waiting_bytes_ = 0;
  bucket_bytes_ = sizes_.next;
}

void ReduceLane::submit(Batch batch) {
  submit_to(group_.reduce(), std::move(batch));
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

void ReduceLane::settle() {
  flush();
  order_before(world_.compute_stream());
}

}  // namespace tessera::engine
