#pragma once

#include "engine/unit/parameter_home.hpp"

namespace tessera::engine {

/// Every rank keeps the unit whole (ddp, zero1, zero2). Where the optimizer is sharded, each rank
/// updates its shard in place, and the shards are gathered after the step, during the next forward
/// pass.
class ReplicatedParameters final : public ParameterHome {
 public:
  /// `base`: memory for the whole unit. `optimizer`: how the optimizer's state is held.
  ReplicatedParameters(const UnitPlan& plan, GatherLane& lane, void* base, Holding optimizer);

  View resident(std::size_t segment) const override { return whole(segment); }
  View whole(std::size_t segment) const override;
  void await() override;
  void send_updated() override;

 private:
  void* base_;
  Holding optimizer_;
  OwnedEvent ready_;  // recorded when its shards are gathered
};

}  // namespace tessera::engine
