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

/// The way on which gradients leave a rank: its reduce channel, in order with the compute stream. A
/// model's units share it.
///
/// Order:   `reduce` and `flush` are made by all ranks in the same order.
/// Time:    everything enqueues; `settle` makes the compute stream wait for all reductions.
class ReduceLane {
 public:
  /// `buckets`: null where each unit leaves alone.
  ReduceLane(World& world, Journal& journal, const Sharding& group, const BucketSizes* buckets);

  [[nodiscard]] World& world() const noexcept { return world_; }
  [[nodiscard]] const Sharding& group() const noexcept { return group_; }
  [[nodiscard]] Stream stream() const noexcept { return group_.reduce().stream; }

  void begin_step() noexcept { bucket_bytes_ = sizes_.first; }
  /// The gradients are done on the compute stream. They may wait for company.
  void reduce(GradientHome& gradients);
  /// Reduces what waits for its bucket to fill.
  void flush();
  void settle();
  /// What is submitted from now on runs after what the compute stream has so far.
  void order_after_compute();
  void submit(Batch batch);
  /// The reduce stream waits for what `before` has so far, through a mark of the lane's.
  void order_after(Stream before);
  /// `after` waits for what the reduce stream has so far, in the same way.
  void order_before(Stream after);

 private:
  World& world_;
  Journal& journal_;
  Sharding group_;
  bool in_buckets_;
  BucketSizes sizes_;
  std::size_t bucket_bytes_ = 0;        // of the bucket that fills now
  std::vector<GradientHome*> waiting_;  // for company
  std::size_t waiting_bytes_ = 0;
  OwnedEvent compute_mark_;
  OwnedEvent reduce_mark_;
};

}  // namespace tessera::engine
