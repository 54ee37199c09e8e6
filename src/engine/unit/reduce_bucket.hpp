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

/// Units whose gradients are complete, and their way to the result: what the homes ask for is
/// submitted to the lane, and then they keep it. A model's units share it.
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
  /// Reduces those that wait.
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
