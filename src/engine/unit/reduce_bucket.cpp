#include "engine/unit/reduce_bucket.hpp"

#include <string>
#include <utility>

namespace tessera::engine {

ReduceBucket::ReduceBucket(Journal& journal, ReduceLane& lane, BucketSizes sizes)
    : journal_{journal}, lane_{lane}, sizes_{sizes}, full_at_{sizes.first} {}

void ReduceBucket::add(GradientHome& gradients) {
  journal_.issue("reduce", gradients.unit_name());
  waiting_.push_back(&gradients);
  waiting_bytes_ += gradients.bytes();
  if (waiting_bytes_ >= full_at_) { flush(); }
}

void ReduceBucket::flush() {
  if (waiting_.empty()) { return; }
  std::string label = "reduce";
  for (const GradientHome* const gradients : waiting_) { label += " " + gradients->unit_name(); }
  Batch batch{label};
  Batch across{label + " across groups"};
  lane_.order_after_compute();
  for (GradientHome* const gradients : waiting_) { gradients->append_reductions(batch, across); }
  lane_.submit(std::move(batch), std::move(across));
  for (GradientHome* const gradients : waiting_) { gradients->keep(); }
  waiting_.clear();
  waiting_bytes_ = 0;
  full_at_ = sizes_.next;
}

}  // namespace tessera::engine
