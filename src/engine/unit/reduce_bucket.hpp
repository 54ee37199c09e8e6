#pragma once

#include <cstddef>
#include <vector>

#include "engine/unit/gradient_home.hpp"
#include "engine/unit/journal.hpp"
#include "engine/unit/reduce_lane.hpp"

namespace tessera::engine {

/// How many bytes of finished units are all-reduced together: 0 where each is reduced alone.
struct BucketSizes {
  std::size_t first = 0;
  std::size_t next = 0;
};

/// The units whose gradients are complete and not yet reduced. A flush submits the reductions of
/// all of them to the lane, and has each home keep its result. A model's units share the bucket.
///
/// Order:   all ranks call `add` and `flush` in the same order.
/// Time:    everything enqueues.
class ReduceBucket {
 public:
  /// `journal` and `lane` outlive it.
  ReduceBucket(Journal& journal, ReduceLane& lane, BucketSizes sizes);

  void begin_step() noexcept { full_at_ = sizes_.first; }
  /// The gradients are complete on the compute stream. They wait until the bucket is full.
  void add(GradientHome& gradients);
  /// Reduces the gradients that wait.
  void flush();

 private:
  Journal& journal_;
  ReduceLane& lane_;
  BucketSizes sizes_;
  std::size_t full_at_ = 0;  // bytes
  std::vector<GradientHome*> waiting_;
  std::size_t waiting_bytes_ = 0;
};

}  // namespace tessera::engine
