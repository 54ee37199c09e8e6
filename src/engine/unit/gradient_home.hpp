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
#include "tessera/engine/model_options.hpp"
#include "tessera/kernels/write.hpp"

namespace tessera::engine {

/// Where one unit's gradients live on this rank and how they leave it.
///
///   closed --open--> taken (zeroed, or holding earlier micro-batches) --complete--> on its way
///
/// The reduction is what the optimizer's holder needs: reduce to rank 0 (dp), all-reduce (ddp),
/// reduce-scatter (zero), and an all-reduce across the shard groups of what that has left on a rank
/// (hybrid). Sums are not averaged here. Where the reduce dtype is narrower than the gradients', a
/// rounded copy travels.
///
/// Order:   `complete` is made by all ranks in the same order of units.
/// Time:    everything enqueues.
class GradientHome {
 public:
  virtual ~GradientHome() = default;
  GradientHome(const GradientHome&) = delete;
  GradientHome& operator=(const GradientHome&) = delete;

  /// Makes room for the gradients on the compute stream, once a micro-batch.
  void open() { open(plan_.options.gradients); }
  /// The same where nobody writes them.
  void open_as_zero() { open(GradientInit::zeroed); }
  /// Whether `open` would find a place, or has done so already.
  [[nodiscard]] virtual bool can_open() const { return true; }
  [[nodiscard]] bool is_open() const noexcept { return open_; }
  /// Whether they are in a slot now, which another unit may have when they have left it.
  [[nodiscard]] virtual bool in_slot() const { return false; }
  /// Whether `whole` is at the same addresses whenever they are open.
  [[nodiscard]] virtual bool stays_in_place() const { return true; }
  /// Whether `other` may be what `can_open` lacks a place for.
  [[nodiscard]] virtual bool shares_slots_with(const GradientHome& /*other*/) const {
    return false;
  }
  /// The whole segment that backward adds into, while open.
  [[nodiscard]] View whole(std::size_t segment) const {
    return plan_.gradient_view(segment, base());
  }
  /// How the next writer of all of a parameter's gradient is to write it, in the scope of a unit
  /// that has it, by that unit's index. ContractError if `take` has not followed the last call.
  [[nodiscard]] kernels::Write write(std::size_t parameter, std::size_t scope);
  /// A writer takes a parameter's gradient: zeros where nothing has been written nor is about to
  /// be.
  void take(std::size_t parameter);
  /// Fills what nobody has written with zeros. It may still be overwritten.
  void zero_unwritten();
  /// ContractError if a gradient is to be written in the scope of unit `scope`, which is called
  /// `name`, and has not been taken.
  void require_taken(std::size_t scope, std::string_view name) const;
  /// The unit's gradients of this micro-batch are done on the compute stream.
  void complete(bool last_micro_batch);
  /// Whether this step's reduction has been issued.
  [[nodiscard]] bool reduced() const noexcept { return reduced_; }
  /// The next backward pass starts from zero.
  void begin_step() noexcept { started_ = reduced_ = false; }

  /// What this rank keeps on its device of the reduced segment: elements `Owned::updates`, or
  /// nothing.
  [[nodiscard]] virtual View resident(std::size_t segment) const = 0;
  /// What it keeps in the host pool; null unless the host updates the unit.
  [[nodiscard]] HostGradients* host() const noexcept { return host_; }

  /// *Collective.* Brings the whole reduced gradients to every rank, in `whole`, until
  /// `end_export`.
  void begin_export();
  virtual void end_export() {}

  /// ContractError that names the slots that no micro-batch has given back.
  virtual void require_slots_free() const {}

  // What the lane asks, once `complete` has handed the gradients to it.
  [[nodiscard]] const std::string& unit_name() const noexcept { return plan_.name; }
  [[nodiscard]] std::size_t bytes() const { return plan_.gradient_bytes(); }
  /// Adds the reductions to `batch`, and to `across` what follows where there are several shard
  /// groups. What runs on the reduce stream before may be enqueued here.
  void append_reductions(Batch& batch, Batch& across);
  /// Enqueues what becomes of the result, after the reductions.
  void keep();

 protected:
  /// What a home is made of. All of it outlives the home but `host`, which it owns.
  struct Parts {
    const UnitPlan& plan;
    ReduceLane& lane;
    StrategyTraits traits;
    SlotRing* wire_ring = nullptr;  ///< null where nothing travels in a copy
    HostGradients* host = nullptr;  ///< null unless the host updates the unit
    void* kept = nullptr;           ///< memory for what stays on the device; null if nothing does
  };
  explicit GradientHome(const Parts& parts);

  /// Makes `base` writable on the compute stream; whether it then is to be cleared.
  [[nodiscard]] virtual bool make_room() = 0;
  [[nodiscard]] virtual void* base() const = 0;
  /// Whether gradients leave with every micro-batch.
  [[nodiscard]] virtual bool leaves_each_time() const = 0;
  /// What the reductions leave goes to where it stays, also where that is the host pool.
  virtual void keep_on_device() = 0;
  virtual void keep_on_host() = 0;

  [[nodiscard]] const UnitPlan& plan() const noexcept { return plan_; }
  [[nodiscard]] ReduceLane& lane() const noexcept { return lane_; }
  [[nodiscard]] World& world() const noexcept { return lane_.world(); }
  [[nodiscard]] const StrategyTraits& traits() const noexcept { return traits_; }
  [[nodiscard]] void* kept() const noexcept { return kept_; }
  /// The elements of `whole` that this rank updates.
  [[nodiscard]] View updated(std::size_t segment) const;
  /// Whether something of this step is kept.
  [[nodiscard]] bool started() const noexcept { return started_; }
  void start() noexcept { started_ = true; }
  /// Whether what stays is not where whole gradients would be.
  [[nodiscard]] virtual bool exports_in_slot() const { return false; }
  /// Takes a slot for the reduce stream to write.
  virtual void take_export_slot() {}

  friend class GradientPool;

 private:
  /// What has become of a parameter's gradient since it was opened.
  enum class Content : std::uint8_t { anything, to_be_written, written };

  void open(GradientInit content);
  void clear(GradientInit content);
  void fill_with_zeros(std::size_t parameter);

  const UnitPlan& plan_;
  ReduceLane& lane_;
  StrategyTraits traits_;
  std::unique_ptr<Wire> wire_;  // null where nothing travels in a copy
  HostGradients* host_;
  void* kept_;
  std::vector<Content> contents_;     // by parameter; GradientInit::first_write
  std::vector<std::size_t> writers_;  // by parameter: the scope that is to write it
  bool open_ = false;
  bool started_ = false;
  bool reduced_ = false;
};

/// What the gradient homes of a model's units share: the memory that they are cut from, and the way
/// on which gradients leave. It outlives them.
///
/// Memory: all of it taken in the constructor.
class GradientPool {
 public:
  /// `pending`: the most blocks that are on their way back at once.
  GradientPool(World& world, const UnitPlans& plans, Journal& journal, const ModelOptions& options,
               const Sharding& group, int pending);

  /// Gradients are *direct* or *in slots*. Direct (ddp, zero1, dp; others when reduction is
  /// deferred over micro-batches): backward adds into whole gradients that stay, and the last
  /// micro-batch reduces them in place. In slots (zero2, zero3, hybrid; others when every one of
  /// several micro-batches is reduced): backward adds into a slot, which is reduced in place and
  /// then added to what stays. Once for each unit, in the order of declaration.
  [[nodiscard]] std::unique_ptr<GradientHome> make_home(std::size_t unit);

  [[nodiscard]] ReduceLane& lane() noexcept { return lane_; }
  /// Makes the compute stream wait for all that is on its way, to the host pool too.
  void settle();
  /// Null if the host updates no unit.
  [[nodiscard]] HostGradientPool* host() const noexcept { return host_.get(); }
  /// Of the memory that backward adds into.
  [[nodiscard]] Category category() const noexcept {
    return in_slots_ ? Category::reduce : Category::gradients;
  }
  [[nodiscard]] std::size_t persistent_bytes() const noexcept {
    return borrows_ ? 0 : kept_.bytes();
  }

 private:
  [[nodiscard]] std::size_t kept_bytes(const UnitPlan& plan) const;
  void make_host(const ModelOptions& options, const Sharding& group);
  [[nodiscard]] BucketSizes bucket_sizes(const ModelOptions& options) const;

  World& world_;
  const UnitPlans& plans_;
  StrategyTraits traits_;
  bool in_slots_;
  bool borrows_;  // from rank 0
  BucketSizes sizes_;
  ReduceLane lane_;
  Arena kept_;   // whole or sharded gradients that stay, by holding
  Arena slots_;  // that backward adds into
  std::vector<SlotRing> rings_;
  std::vector<std::size_t> ring_;  // by unit
  Arena wire_;                     // copies of a narrower dtype
  std::vector<SlotRing> wire_rings_;
  std::vector<std::size_t> wire_ring_;  // by unit
  std::unique_ptr<HostGradientPool> host_;
};

}  // namespace tessera::engine
