#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "engine/journal.hpp"
#include "engine/plan/sharding.hpp"
#include "engine/unit_state.hpp"
#include "tessera/engine/strategy.hpp"
#include "tessera/world/world.hpp"

namespace tessera::engine {

using Units = std::vector<UnitState>;

/// Where a model's parameters live on this rank, between steps and while they are used.
///
///   absent --fetch--> held --await--> readable on the compute stream --release--> absent
///
/// A store that keeps whole parameters is always `held`.
///
/// Order:   fetch, begin_micro_batch and updated may be collective: all ranks make the same calls.
/// Time:    everything enqueues; `await` makes the compute stream wait.
/// Memory:  all of it taken in the constructor.
class ParameterStore {
 public:
  virtual ~ParameterStore() = default;
  ParameterStore(const ParameterStore&) = delete;
  ParameterStore& operator=(const ParameterStore&) = delete;

  /// What this rank keeps of a segment between steps (empty if nothing), ...
  [[nodiscard]] virtual View resident(std::size_t unit, std::size_t segment) const = 0;
  /// ... and which of the segment's elements that is.
  [[nodiscard]] virtual Range resident_range(std::size_t unit, std::size_t segment) const = 0;
  /// The whole segment, while the unit is held.
  [[nodiscard]] virtual View whole(std::size_t unit, std::size_t segment) const = 0;

  [[nodiscard]] virtual bool held(std::size_t unit) const = 0;
  /// Whether `fetch` would find a place.
  [[nodiscard]] virtual bool can_fetch(std::size_t unit) const = 0;
  virtual void fetch(std::size_t unit) = 0;
  virtual void await(std::size_t unit) = 0;
  /// `reader` used the unit last. A unit of Residence::update stays held.
  virtual void release(std::size_t unit, Stream reader) = 0;

  /// The unit's updated parameters, of this rank's share, are on their way by `lane` and there when
  /// it has come here. Whatever reads them next waits for that.
  void arrive(std::size_t unit, Stream lane) { lane.record(arrivals_[unit].get()); }

  virtual void begin_micro_batch() {}
  /// The compute stream passes when no transfer of parameters is under way.
  void settle();
  /// The optimizer, on the compute stream, has changed what this rank updates. What is sent round
  /// for it goes in the order `forward` of units, which all ranks have alike.
  virtual void updated(std::span<const std::size_t> forward) = 0;

  /// Of the memory that `whole` looks at.
  [[nodiscard]] virtual Category category() const noexcept = 0;
  /// ContractError that names the slots that are still taken.
  virtual void require_slots_free() const {}
  [[nodiscard]] virtual std::size_t persistent_bytes() const noexcept = 0;

 protected:
  /// `gather`: over which parameters come.
  ParameterStore(World& world, const Units& units, Journal& journal, Channel gather);

  /// The gather stream goes on when the compute stream has come here.
  void order_gather_after_compute();
  void submit(const char* verb, std::size_t unit, Batch batch);
  /// `reader` goes on when the unit's share has arrived; at once where none is under way.
  void await_arrival(std::size_t unit, Stream reader) const {
    if (units_[unit].offloaded) { reader.wait_for(arrivals_[unit].get()); }
  }

  World& world_;
  const Units& units_;
  Journal& journal_;
  Channel gather_;

 private:
  OwnedEvent compute_mark_;
  OwnedEvent gather_mark_;
  std::vector<OwnedEvent> arrivals_;  // by unit; of offloaded ones
};

/// The most units that are gathered ahead.
[[nodiscard]] int most_prefetch(const ModelOptions& options) noexcept;

/// The one that the strategy asks for.
[[nodiscard]] std::unique_ptr<ParameterStore> make_parameter_store(World& world, const Units& units,
                                                                   Journal& journal,
                                                                   const ModelOptions& options,
                                                                   const Sharding& group);

}  // namespace tessera::engine
