#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/plan/unit_plan.hpp"
#include "engine/unit/host_gradients.hpp"
#include "engine/unit/reduce_lane.hpp"
#include "engine/unit/wire.hpp"
#include "tessera/kernels/write.hpp"

namespace tessera::engine {

/// Where one unit's gradients live on this rank and how they are reduced.
///
///   closed --open--> taken (zeroed, or holding earlier micro-batches) --complete--> on its way
///
/// The reduction depends on the strategy: reduce to rank 0 (dp), all-reduce (ddp), reduce-scatter
/// (zero), and for hybrid an all-reduce of the scattered part across the shard groups. Sums are not
/// averaged here. Where the reduce dtype is narrower than the gradients', a rounded copy travels.
///
/// Order:   all ranks call `complete` in the same order of units.
/// Time:    everything enqueues.
class GradientHome {
 public:
  virtual ~GradientHome() = default;
  GradientHome(const GradientHome&) = delete;
  GradientHome& operator=(const GradientHome&) = delete;

  /// Makes room for the gradients on the compute stream, once a micro-batch.
  void open() { open(plan_.options.gradients); }
  /// The same for gradients that no scope writes.
  void open_as_zero() { open(GradientInit::zeroed); }
  /// Whether `open` would find a slot, or already has one.
  [[nodiscard]] virtual bool can_open() const { return true; }
  [[nodiscard]] bool is_open() const noexcept { return open_; }
  /// Whether they are in a slot now, which another unit may take once they have left it.
  [[nodiscard]] virtual bool in_slot() const { return false; }
  /// Whether `whole` has the same addresses each time they are open.
  [[nodiscard]] virtual bool stays_in_place() const { return true; }
  /// The category of the memory behind `whole`.
  [[nodiscard]] virtual Category category() const { return Category::gradients; }
  /// Whether `other` may hold the slot that `can_open` lacks.
  [[nodiscard]] virtual bool shares_slots_with(const GradientHome& /*other*/) const {
    return false;
  }
  /// The whole segment that backward adds into, while open.
  [[nodiscard]] View whole(std::size_t segment) const {
    return plan_.gradient_view(segment, base());
  }
  /// How the next writer of the whole gradient must write it, in the scope of the unit with index
  /// `scope`. Throws ContractError if `take` has not followed the last call.
  [[nodiscard]] kernels::Write write(std::size_t parameter, std::size_t scope);
  /// A writer takes a parameter's gradient: it holds zeros unless it was written or is about to be.
  void take(std::size_t parameter);
  /// The parameter is frozen from now on: nothing writes its gradient, which counts as zeros.
  void freeze(std::size_t parameter);
  /// Zeroes gradients that were not written. They may still be overwritten.
  void zero_unwritten();
  /// Throws ContractError if a gradient to be written in the scope of unit `scope`, named `name`,
  /// was not taken.
  void require_taken(std::size_t scope, std::string_view name) const;
  /// The unit's gradients of this micro-batch are complete on the compute stream. Returns whether
  /// they are to be reduced now.
  [[nodiscard]] bool complete(bool last_micro_batch);
  /// All gradients of this step are complete. Returns false if some are not reduced yet.
  [[nodiscard]] virtual bool conclude() { return reduced_; }
  /// Whether this step's reduction has been issued.
  [[nodiscard]] bool reduced() const noexcept { return reduced_; }
  /// Whether the parameter's gradient was taken in this step.
  [[nodiscard]] bool is_taken(std::size_t parameter) const { return taken_[parameter]; }
  /// The next backward pass starts from zero.
  void begin_step() noexcept {
    started_ = reduced_ = false;
    taken_.assign(taken_.size(), false);
  }

  /// What this rank keeps on its device of the reduced segment: elements `Owned::updates`, or
  /// nothing.
  [[nodiscard]] virtual View resident(std::size_t segment) const = 0;
  /// What this rank keeps in the host pool; null unless the host updates the unit.
  [[nodiscard]] HostGradients* host() const noexcept { return host_; }

  /// *Collective.* Gathers the whole reduced gradients to every rank, in `whole`, until
  /// `end_export`.
  void begin_export();
  virtual void end_export() {}

  /// Throws ContractError naming the slots that no micro-batch has released.
  virtual void require_slots_free() const {}

  // The bucket calls these once `complete` has returned true.
  [[nodiscard]] const std::string& unit_name() const noexcept { return plan_.name; }
  [[nodiscard]] std::size_t bytes() const { return plan_.gradient_bytes(); }
  /// Adds the reductions to `batch`, and to `across` the second one where there are several shard
  /// groups. May enqueue work that runs on the reduce stream before them.
  void append_reductions(Batch& batch, Batch& across);
  /// Enqueues what happens to the result, after the reductions.
  void keep();

 protected:
  /// What a home is made of. All of it outlives the home, except `host`, which the home owns.
  struct Parts {
    const UnitPlan& plan;
    ReduceLane& lane;
    StrategyTraits traits;
    SlotRing* wire_ring = nullptr;  ///< null if gradients are reduced in their own dtype
    HostGradients* host = nullptr;  ///< null unless the host updates the unit
    void* kept = nullptr;           ///< memory for what stays on the device; null if nothing does
  };
  explicit GradientHome(const Parts& parts);

  /// Makes `base` writable on the compute stream; returns whether it must be cleared.
  [[nodiscard]] virtual bool make_room() = 0;
  [[nodiscard]] virtual void* base() const = 0;
  /// Whether gradients are reduced after every micro-batch.
  [[nodiscard]] virtual bool leaves_each_time() const = 0;
  /// Moves the result of the reductions to where it stays, also if that is the host pool.
  virtual void keep_on_device() = 0;
  virtual void keep_on_host() = 0;

  [[nodiscard]] const UnitPlan& plan() const noexcept { return plan_; }
  [[nodiscard]] ReduceLane& lane() const noexcept { return lane_; }
  [[nodiscard]] World& world() const noexcept { return lane_.world(); }
  [[nodiscard]] const StrategyTraits& traits() const noexcept { return traits_; }
  [[nodiscard]] void* kept() const noexcept { return kept_; }
  /// The elements of `whole` that this rank updates.
  [[nodiscard]] View updated(std::size_t segment) const;
  /// Whether any gradient of this step is kept.
  [[nodiscard]] bool started() const noexcept { return started_; }
  void start() noexcept { started_ = true; }
  void set_reduced() noexcept { reduced_ = true; }
  /// Whether the result is kept elsewhere than in the whole gradients.
  [[nodiscard]] virtual bool exports_in_slot() const { return false; }
  /// Takes a slot that the reduce stream writes.
  virtual void take_export_slot() {}

  friend class GradientPool;

 private:
  /// The state of a parameter's gradient since it was opened.
  enum class Content : std::uint8_t { anything, to_be_written, written };

  void open(GradientInit content);
  void clear(GradientInit content);
  void fill_with_zeros(std::size_t parameter);

  const UnitPlan& plan_;
  ReduceLane& lane_;
  StrategyTraits traits_;
  std::unique_ptr<Wire> wire_;  // null if gradients are reduced in their own dtype
  HostGradients* host_;
  void* kept_;
  std::vector<Content> contents_;     // by parameter; GradientInit::first_write
  std::vector<std::size_t> writers_;  // by parameter: the scope that must write it
  std::vector<bool> taken_;           // by parameter
  bool open_ = false;
  bool started_ = false;
  bool reduced_ = false;
};

}  // namespace tessera::engine
