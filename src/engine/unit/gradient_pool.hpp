#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "engine/plan/slot_plan.hpp"
#include "engine/plan/use_order.hpp"
#include "engine/unit/gradient_home.hpp"
#include "engine/unit/host_gradients.hpp"
#include "engine/unit/reduce_bucket.hpp"
#include "tessera/engine/model_options.hpp"

namespace tessera::engine {

/// What the gradient homes of a model's units share: the memory that they are cut from, and the
/// way to their reduction. It outlives them.
///
/// Memory: all of it taken in the constructor, but for late slots.
class GradientPool {
 public:
  /// `order` says how many blocks' gradients are pending at once.
  GradientPool(World& world, const UnitPlans& plans, Journal& journal, const ModelOptions& options,
               const Sharding& group, const UseOrder& order);

  /// Gradients are *direct* or *in slots*. Direct (ddp, zero1, dp, units kept whole; others when
  /// reduction is deferred over micro-batches): backward adds into whole gradients that stay, and
  /// the last micro-batch reduces them in place. In slots (zero2, zero3, hybrid; others when each
  /// of several micro-batches is reduced): backward adds into a slot, which is reduced in place and
  /// then added to what stays. Call it once for each unit, in declaration order.
  [[nodiscard]] std::unique_ptr<GradientHome> make_home(std::size_t unit);

  [[nodiscard]] ReduceBucket& bucket() noexcept { return bucket_; }
  /// Makes the compute stream wait for all reductions, and for copies to the host pool.
  void settle();
  /// Null if the host updates no unit.
  [[nodiscard]] HostGradientPool* host() const noexcept { return host_.get(); }
  [[nodiscard]] std::size_t persistent_bytes() const noexcept {
    return borrows_ ? 0 : kept_.bytes();
  }

 private:
  /// Whether the unit's gradients are in slots.
  [[nodiscard]] bool in_slots(const UnitPlan& plan) const;
  [[nodiscard]] std::size_t kept_bytes(const UnitPlan& plan) const;
  void make_host(const ModelOptions& options, const Sharding& group);
  /// The slots of a direct unit for gradients that come after its reduction. The first call takes
  /// the memory of all of them: as much as zero2 has from the start.
  [[nodiscard]] SlotRing& late_slots(std::size_t unit);

  /// Slots that backward adds into.
  struct Slots {
    Arena arena;
    std::vector<SlotRing> rings;
    std::vector<std::size_t> ring_of_unit;
  };
  [[nodiscard]] Slots take(const SlotPlan& plan);

  World& world_;
  const UnitPlans& plans_;
  bool every_;     // whether each of several micro-batches is reduced
  bool deferred_;  // whether several are reduced together
  bool borrows_;   // from rank 0
  int late_at_once_;
  SlotPoison poison_;
  ReduceLane lane_;
  ReduceBucket bucket_;
  Arena kept_;  // gradients that stay, whole or sharded
  Slots slots_;
  Slots late_slots_;  // of direct units, once needed
  Arena wire_;        // copies of a narrower dtype
  std::vector<SlotRing> wire_rings_;
  std::vector<std::size_t> wire_ring_;  // by unit
  std::unique_ptr<HostGradientPool> host_;
};

}  // namespace tessera::engine
