#pragma once

#include <vector>

#include "engine/parameter_store.hpp"

namespace tessera::engine {

/// Every rank keeps every parameter whole (ddp, zero1, zero2). Where the optimizer's work is
/// sharded, each rank updates its shard in place and the shards are gathered after the step, unit
/// by unit in the order of the next forward pass, while that is under way.
class ReplicatedParameters final : public ParameterStore {
 public:
  ReplicatedParameters(World& world, const Units& units, Journal& journal, Holding optimizer,
                       const Sharding& group);

  View resident(std::size_t unit, std::size_t segment) const override;
  Range resident_range(std::size_t unit, std::size_t segment) const override;
  View whole(std::size_t unit, std::size_t segment) const override;
  bool held(std::size_t) const override { return true; }
  bool can_fetch(std::size_t) const override { return false; }
  void fetch(std::size_t) override {}
  void await(std::size_t unit) override;
  void release(std::size_t, Stream) override {}
  void updated(std::span<const std::size_t> forward) override;
  Category category() const noexcept override { return Category::parameters; }
  std::size_t persistent_bytes() const noexcept override { return arena_.bytes(); }

 private:
  Holding optimizer_;
  ShardPlace place_;
  Arena arena_;
  std::vector<void*> base_;        // by unit
  std::vector<OwnedEvent> ready_;  // by unit: its shards have been gathered
};

}  // namespace tessera::engine
