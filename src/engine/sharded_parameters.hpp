#pragma once

#include <vector>

#include "engine/parameter_store.hpp"

namespace tessera::engine {

/// Every rank keeps 1/N of every unit (zero3). Units are gathered into slots just in time: blocks
/// into a ring of prefetch + 1 slots that fit the largest block, root units into slots of their
/// own.
class ShardedParameters final : public ParameterStore {
 public:
  ShardedParameters(World& world, const Units& units, Journal& journal, int prefetch);

  View resident(std::size_t unit, std::size_t segment) const override;
  Range resident_range(std::size_t unit, std::size_t segment) const override;
  View whole(std::size_t unit, std::size_t segment) const override;
  bool held(std::size_t unit) const override { return slot_[unit] != nullptr; }
  bool can_fetch(std::size_t unit) const override { return ring_of(unit).free() > 0; }
  void fetch(std::size_t unit) override;
  void await(std::size_t unit) override;
  void release(std::size_t unit, Stream reader) override;
  void updated() override { order_gather_after_compute(); }
  Category category() const noexcept override { return Category::gather; }
  void require_slots_free() const override;
  std::size_t persistent_bytes() const noexcept override { return shards_.bytes(); }

 private:
  [[nodiscard]] const SlotRing& ring_of(std::size_t unit) const { return rings_[ring_[unit]]; }

  Arena shards_;
  std::vector<void*> shard_base_;  // by unit
  Arena slots_;
  std::vector<SlotRing> rings_;    // the blocks' first, then one a root unit
  std::vector<std::size_t> ring_;  // by unit: index in rings_
  std::vector<Slot*> slot_;        // by unit: null unless held
};

}  // namespace tessera::engine
