#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "engine/unit/gradient_home.hpp"
#include "engine/unit/host_gradients.hpp"
#include "engine/unit/reduce_bucket.hpp"
#include "tessera/engine/model_options.hpp"

namespace tessera::engine {

/// What the gradient homes of a model's units share: the memory that they are cut from, and the
/// way to their reduction. It outlives them.
///
/// Memory: all of it taken in the constructor.
class GradientPool {
 public:
  /// `pending`: the most blocks whose gradients are pending at once.
  GradientPool(World& world, const UnitPlans& plans, Journal& journal, const ModelOptions& options,
               const Sharding& group, int pending);

  /// Gradients are *direct* or *in slots*. Direct (ddp, zero1, dp; others when reduction is
  /// deferred over micro-batches): backward adds into whole gradients that stay, and the last
  /// micro-batch reduces them in place. In slots (zero2, zero3, hybrid; others when each of several
  /// micro-batches is reduced): backward adds into a slot, which is reduced in place and then added
  /// to what stays. Call it once for each unit, in declaration order.
  [[nodiscard]] std::unique_ptr<GradientHome> make_home(std::size_t unit);

  [[nodiscard]] ReduceBucket& bucket() noexcept { return bucket_; }
  /// Makes the compute stream wait for all reductions, and for copies to the host pool.
  void settle();
  /// Null if the host updates no unit.
  [[nodiscard]] HostGradientPool* host() const noexcept { return host_.get(); }
  /// The category of the memory that backward adds into.
  [[nodiscard]] Category category() const noexcept {
    return in_slots_ ? Category::reduce : Category::gradients;
  }
  [[nodiscard]] std::size_t persistent_bytes() const noexcept {
    return borrows_ ? 0 : kept_.bytes();
  }

 private:
  [[nodiscard]] std::size_t kept_bytes(const UnitPlan& plan) const;
  void make_host(const ModelOptions& options, const Sharding& group);
  void take_slots();
  /// The slots of a unit for gradients that come after its reduction. The first call takes the
  /// memory of all of them: as much as zero2 has from the start.
  [[nodiscard]] SlotRing& late_slots(std::size_t unit);

  World& world_;
  const UnitPlans& plans_;
  StrategyTraits traits_;
  bool in_slots_;
  bool borrows_;  // from rank 0
  int most_slots_;
  SlotPoison poison_;
  ReduceLane lane_;
  ReduceBucket bucket_;
  Arena kept_;   // gradients that stay, whole or sharded
  Arena slots_;  // slots that backward adds into
  std::vector<SlotRing> rings_;
  std::vector<std::size_t> ring_;  // by unit
  Arena wire_;                     // copies of a narrower dtype
  std::vector<SlotRing> wire_rings_;
  std::vector<std::size_t> wire_ring_;  // by unit
  std::unique_ptr<HostGradientPool> host_;
};

}  // namespace tessera::engine
