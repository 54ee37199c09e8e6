#pragma once

#include <cstddef>
#include <vector>

#include "engine/plan/sharding.hpp"
#include "engine/unit/journal.hpp"
#include "tessera/world/world.hpp"

namespace tessera::engine {

class GradientHome;

/// How many bytes of finished units are all-reduced together.
struct BucketSizes {
  std::size_t first = 0;
  std::size_t next = 0;
};

/// How gradients leave a rank: its reduce channel, in order with the compute stream. A model's
/// units share it.
///
/// Order:   all ranks call `reduce` and `flush` in the same order.
/// Time:    everything enqueues; `settle` makes the compute stream wait for all reductions.
class ReduceLane {
 public:
  /// `buckets`: null if each unit is reduced alone.
  ReduceLane(World& world, Journal& journal, const Sharding& group, const BucketSizes* buckets);

  [[nodiscard]] World& world() const noexcept { return world_; }
  [[nodiscard]] const Sharding& group() const noexcept { return group_; }
  [[nodiscard]] Stream stream() const noexcept { return group_.reduce().stream; }

  void begin_step() noexcept { bucket_bytes_ = sizes_.first; }
  /// The gradients are complete on the compute stream. They may wait in a bucket.
  void reduce(GradientHome& gradients);
  /// Reduces the bucket that is not full yet.
  void flush();
  void settle();
  /// Batches submitted from now on run after the compute stream's work so far.
  void order_after_compute();
  void submit(Batch batch);
  /// The reduce stream waits for the work of `before` so far, through the lane's event.
  void order_after(Stream before);
  /// `after` waits for the reduce stream's work so far, in the same way.
  void order_before(Stream after);

 private:
  World& world_;
  Journal& journal_;
  Sharding group_;
  bool in_buckets_;
  BucketSizes sizes_;
  std::size_t bucket_bytes_ = 0;        // of the bucket being filled
  std::vector<GradientHome*> waiting_;  // gradients in the bucket
  std::size_t waiting_bytes_ = 0;
  OwnedEvent compute_mark_;
  OwnedEvent reduce_mark_;
};

}  // namespace tessera::engine
