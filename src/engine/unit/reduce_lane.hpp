#pragma once

#include "engine/plan/sharding.hpp"
#include "tessera/comm/batch.hpp"
#include "tessera/world/world.hpp"

namespace tessera::engine {

/// How gradients leave a rank: its reduce channel, in order with the compute stream. A model's
/// units share it.
///
/// Order:   all ranks submit the same batches in the same order.
/// Time:    everything enqueues; `settle` makes the compute stream wait for all of it.
class ReduceLane {
 public:
  ReduceLane(World& world, const Sharding& group);

  [[nodiscard]] World& world() const noexcept { return world_; }
  [[nodiscard]] const Sharding& group() const noexcept { return group_; }
  [[nodiscard]] Stream stream() const noexcept { return group_.reduce().stream; }

  /// Batches submitted from now on run after the compute stream's work so far.
  void order_after_compute();
  void submit(Batch batch);
  /// The same, and then `across` among the ranks of other shard groups if there are several.
  void submit(Batch batch, Batch across);
  /// The reduce stream waits for the work of `before` so far, through the lane's event.
  void order_after(Stream before);
  /// `after` waits for the reduce stream's work so far, in the same way.
  void order_before(Stream after);
  void settle() { order_before(world_.compute_stream()); }

 private:
  World& world_;
  Sharding group_;
  OwnedEvent compute_mark_;
  OwnedEvent reduce_mark_;
};

}  // namespace tessera::engine
