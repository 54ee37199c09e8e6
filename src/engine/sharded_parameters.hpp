#pragma once

#include <vector>

#include "engine/parameter_store.hpp"

namespace tessera::engine {

/// Every rank keeps its part of every unit, 1/N (zero3) or 1/S (hybrid). Units are gathered into
/// slots just in time: those that are given back after each use into a ring that fits the largest
/// of them, the others into slots of their own. A unit of Residence::update is not given back by
/// `release`, but by `updated`.
class ShardedParameters final : public ParameterStore {
 public:
  /// `ring_slots`: of the ring, if so many units share it.
  ShardedParameters(World& world, const Units& units, Journal& journal, const Sharding& group,
                    int ring_slots, SlotPoison poison);

  View resident(std::size_t unit, std::size_t segment) const override;
  Range resident_range(std::size_t unit, std::size_t segment) const override;
  View whole(std::size_t unit, std::size_t segment) const override;
  bool held(std::size_t unit) const override { return slot_[unit] != nullptr; }
  bool can_fetch(std::size_t unit) const override { return ring_of(unit).free() > 0; }
  void fetch(std::size_t unit) override;
  void await(std::size_t unit) override;
  void release(std::size_t unit, Stream reader) override;
  void updated(std::span<const std::size_t> forward) override;
  Category category() const noexcept override { return Category::gather; }
  void require_slots_free() const override;
  std::size_t persistent_bytes() const noexcept override { return shards_.bytes(); }

 private:
  void give_back(std::size_t unit, Stream reader);
  [[nodiscard]] const SlotRing& ring_of(std::size_t unit) const { return rings_[ring_[unit]]; }

  Sharding group_;
  Arena shards_;
  std::vector<void*> shard_base_;  // by unit
  Arena slots_;
  std::vector<SlotRing> rings_;    // the shared one first
  std::vector<std::size_t> ring_;  // by unit: index in rings_
  std::vector<Slot*> slot_;        // by unit: null unless held
};

}  // namespace tessera::engine
