#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "engine/host_gradients.hpp"
#include "engine/journal.hpp"
#include "engine/parameter_store.hpp"
#include "engine/unit_state.hpp"
#include "engine/wire.hpp"
#include "tessera/engine/strategy.hpp"
#include "tessera/world/world.hpp"

namespace tessera::engine {

/// Where gradients live on this rank and how they leave it.
///
/// *Direct* (ddp, zero1, dp; others when reduction is deferred over micro-batches): backward adds
/// into whole gradients that stay, and the last micro-batch reduces them in place.
/// *In slots* (zero2, zero3, hybrid; others when every one of several micro-batches is reduced):
/// backward adds into a slot, which is reduced in place and then added to what stays. Of offloaded
/// units that is in the host pool (HostGradients); with direct gradients there is a copy.
///
///   closed --open--> taken (zeroed, or holding earlier micro-batches) --complete--> on its way
///
/// The reduction is what the optimizer's holder needs: reduce to rank 0 (dp), all-reduce in buckets
/// (ddp), reduce-scatter (zero), and an all-reduce across the shard groups of what that has left on
/// a rank (hybrid). Sums are not averaged here. Where the reduce dtype is narrower than the
/// gradients', a rounded copy travels, and no buckets are formed.
///
/// Order:   `complete`, `flush` are made by all ranks in the same order.
/// Time:    everything enqueues; `settle` makes the compute stream wait for all reductions.
/// Memory:  all of it taken in the constructor.
class GradientStore {
 public:
  /// `pending`: the most blocks that are on their way back at once.
  GradientStore(World& world, const Units& units, Journal& journal, const ModelOptions& options,
                const Sharding& group, int pending);

  /// Makes room for `unit`'s gradients on the compute stream, once a micro-batch.
  void open(std::size_t unit) { open(unit, units_[unit].options.gradients); }
  /// The same for a unit whose gradients nobody writes.
  void open_as_zero(std::size_t unit) { open(unit, GradientInit::zeroed); }
  /// Whether `open` would find a place, or has done so already.
  [[nodiscard]] bool can_open(std::size_t unit) const;
  /// The units that hold the slots which `unit` could use: "'a', 'b'".
  [[nodiscard]] std::string slot_owners(std::size_t unit) const;
  [[nodiscard]] bool is_open(std::size_t unit) const { return open_[unit]; }
  /// Whether they are in a slot now, which another unit may have when they have left it.
  [[nodiscard]] bool in_slot(std::size_t unit) const { return slot_[unit] != nullptr; }
  /// The whole segment that backward adds into, while open.
  [[nodiscard]] View whole(std::size_t unit, std::size_t segment) const;
  /// The unit's gradients of this micro-batch are done on the compute stream.
  void complete(std::size_t unit, bool last_micro_batch);
  /// Reduces what is still waiting for its bucket to fill.
  void flush();
  void settle();
  /// The next backward pass starts from zero.
  void begin_step();
  /// Whether this step's reduction of `unit` has been issued.
  [[nodiscard]] bool reduced(std::size_t unit) const { return reduced_[unit]; }

  /// What this rank keeps of the reduced segment (empty if nothing), and which elements that is.
  [[nodiscard]] View resident(std::size_t unit, std::size_t segment) const;
  [[nodiscard]] Range resident_range(std::size_t unit, std::size_t segment) const;
  /// What of them is in the host pool; null if no unit is offloaded. Units that are reduced in
  /// slots are there alone: `resident` is empty.
  [[nodiscard]] HostGradients* host() const noexcept { return host_.get(); }

  /// *Collective.* Brings the whole reduced segment to every rank, until `end_export`.
  void begin_export(std::size_t unit);
  [[nodiscard]] View exported(std::size_t unit, std::size_t segment) const;
  void end_export(std::size_t unit);

  /// Of the memory that backward adds into.
  [[nodiscard]] Category category() const noexcept {
    return in_slots_ ? Category::reduce : Category::gradients;
  }
  /// ContractError that names the slots that no micro-batch has given back: a bug, found before the
  /// slots run out.
  void require_slots_free() const;
  [[nodiscard]] std::size_t persistent_bytes() const noexcept;

 private:
  void open(std::size_t unit, GradientInit content);
  void zero(std::size_t unit, GradientInit content);
  void reduce(std::size_t unit);
  /// What follows where there are several shard groups goes into `across`.
  void append_reduction(Batch& batch, Batch& across, std::size_t unit, std::size_t segment) const;
  static void submit(Batch batch, Channel channel);
  void load_wire(std::size_t unit);
  void unload_wire(std::size_t unit);
  void keep(std::size_t unit);
  void accumulate_and_release(std::size_t unit);
  void take_to_host(std::size_t unit);
  void bring_from_host(std::size_t unit);
  void make_host(const ModelOptions& options);
  void order_reduce_after_compute();
  [[nodiscard]] void* base_of(std::size_t unit) const;

  World& world_;
  const Units& units_;
  Journal& journal_;
  StrategyTraits traits_;
  Sharding group_;
  bool in_slots_;
  std::size_t bucket_bytes_;
  std::size_t next_bucket_bytes_;
  std::size_t first_bucket_bytes_;

  Arena arena_;              // whole or sharded gradients that stay, by holding
  std::vector<void*> base_;  // by unit; null if none stays on this rank
  Arena slot_arena_;
  std::vector<SlotRing> rings_;
  std::vector<std::size_t> ring_;  // by unit
  std::vector<Slot*> slot_;        // by unit
  Wire wire_;
  std::unique_ptr<HostGradients> host_;
  std::vector<bool> open_;           // by unit
  std::vector<bool> started_;        // by unit: holds something of this step
  std::vector<bool> reduced_;        // by unit
  std::vector<std::size_t> bucket_;  // units whose all-reduce waits for company
  std::size_t bucket_filled_ = 0;
  OwnedEvent compute_mark_;
  OwnedEvent reduce_mark_;
};

}  // namespace tessera::engine
