#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "engine/plan/sharding.hpp"
#include "engine/plan/unit_plan.hpp"
#include "engine/unit/gather_lane.hpp"
#include "tessera/engine/model_options.hpp"
#include "tessera/memory/slot_ring.hpp"

namespace tessera::engine {

/// Where one unit's parameters live on this rank, between steps and while they are used.
///
///   absent --gather--> held --await--> readable on the compute stream --release--> absent
///
/// A home that keeps whole parameters is always `held`.
///
/// Order:   gather, copy_from_rank0 and send_updated may be collective: all ranks make the same
///          calls for the same units.
/// Time:    everything enqueues; `await` makes the compute stream wait.
class ParameterHome {
 public:
  virtual ~ParameterHome() = default;
  ParameterHome(const ParameterHome&) = delete;
  ParameterHome& operator=(const ParameterHome&) = delete;

  /// What this rank keeps of a segment between steps: elements `Owned::parameters`.
  [[nodiscard]] virtual View resident(std::size_t segment) const = 0;
  /// The whole segment, while held.
  [[nodiscard]] virtual View whole(std::size_t segment) const = 0;
  /// Whether `whole` has the same addresses each time it is held.
  [[nodiscard]] virtual bool stays_in_place() const { return true; }
  /// The category of the memory behind `whole`.
  [[nodiscard]] virtual Category category() const { return Category::parameters; }

  [[nodiscard]] virtual bool held() const { return true; }
  /// Whether `gather` would find a slot.
  [[nodiscard]] virtual bool can_gather() const { return false; }
  /// Whether `other` may hold the slot that `can_gather` lacks.
  [[nodiscard]] virtual bool shares_slots_with(const ParameterHome& /*other*/) const {
    return false;
  }
  virtual void gather() {}
  virtual void await() = 0;
  /// `reader` was the last stream to use the parameters. A unit of Residence::update stays held.
  virtual void release(Stream /*reader*/) {}

  /// Copies rank 0's parameters to the other ranks, after the lane's mark.
  virtual void copy_from_rank0() {}
  /// The optimizer has changed, on the compute stream, what this rank updates: copies are stale.
  virtual void drop_stale() {}
  /// Sends changed parameters to the ranks that keep them whole.
  virtual void send_updated() {}
  /// The updated parameters of an offloaded unit travel on `stream`, and have arrived when it gets
  /// here. Work that reads them, or overwrites the gradients, waits for that.
  void arrive(Stream stream) { stream.record(arrival_.get()); }
  /// `reader` waits until the updated share has arrived; it does not wait if none is in transit.
  void await_arrival(Stream reader) const {
    if (plan_.state_on_host()) { reader.wait_for(arrival_.get()); }
  }

  /// Throws ContractError naming the slots that are still taken although no scope is open.
  virtual void require_slots_free() const {}

 protected:
  ParameterHome(const UnitPlan& plan, GatherLane& lane);

  [[nodiscard]] const UnitPlan& plan() const noexcept { return plan_; }
  [[nodiscard]] GatherLane& lane() const noexcept { return lane_; }
  [[nodiscard]] Stream compute() const { return lane_.world().compute_stream(); }

 private:
  const UnitPlan& plan_;
  GatherLane& lane_;
  OwnedEvent arrival_;  // of an offloaded unit
};

/// The most units that are gathered ahead.
[[nodiscard]] int most_prefetch(const ModelOptions& options) noexcept;

/// What the parameter homes of a model's units share: the memory that they are cut from, and the
/// lane that gathers parameters. It outlives them.
///
/// Memory: all of it taken in the constructor.
class ParameterPool {
 public:
  ParameterPool(World& world, const UnitPlans& plans, Journal& journal, const ModelOptions& options,
                const Sharding& group);

  /// The home that the unit's traits ask for. Call it once for each unit, in declaration order.
  [[nodiscard]] std::unique_ptr<ParameterHome> make_home(std::size_t unit);

  [[nodiscard]] GatherLane& lane() noexcept { return lane_; }
  [[nodiscard]] bool are_on_rank0() const noexcept { return on_rank0_; }
  [[nodiscard]] std::size_t persistent_bytes() const noexcept;

 private:
  void take_slots(const ModelOptions& options);

  const UnitPlans& plans_;
  bool on_rank0_;
  bool borrows_;  // of rank 0
  GatherLane lane_;
  Arena kept_;
  Arena slots_;
  std::vector<SlotRing> rings_;    // of gathered units
  std::vector<std::size_t> ring_;  // by unit
};

}  // namespace tessera::engine
