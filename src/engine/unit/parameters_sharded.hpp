#pragma once

#include "engine/unit/parameter_home.hpp"

namespace tessera::engine {

/// Every rank keeps its part of the unit, 1/N (zero3) or 1/S (hybrid). The unit is gathered just in
/// time into a slot, of a shared ring or its own. A unit of Residence::update is released by
/// `drop_stale`, not by `release`.
class ShardedParameters final : public ParameterHome {
 public:
  /// `shard`: memory for the rank's part. `shard` and `ring` outlive the home.
  ShardedParameters(const UnitPlan& plan, GatherLane& lane, void* shard, SlotRing& ring)
      : ParameterHome{plan, lane}, shard_{shard}, ring_{ring} {}

  View resident(std::size_t segment) const override;
  View whole(std::size_t segment) const override;
  bool stays_in_place() const override { return ring_.size() == 1; }
  Category category() const override { return Category::gather; }
  bool held() const override { return slot_ != nullptr; }
  bool can_gather() const override { return ring_.free() > 0; }
  bool shares_slots_with(const ParameterHome& other) const override;
  void gather() override;
  void await() override;
  void release(Stream reader) override;
  void drop_stale() override;
  void require_slots_free() const override;

 private:
  void give_back(Stream reader);

  void* shard_;
  SlotRing& ring_;
  Slot* slot_ = nullptr;  // while held
};

}  // namespace tessera::engine
