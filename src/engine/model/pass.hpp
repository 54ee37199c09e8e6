#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "engine/model/tensor_lives.hpp"
#include "engine/plan/use_order.hpp"
#include "engine/unit/journal.hpp"
#include "engine/unit/live_units.hpp"

namespace tessera::engine {

/// How many units are gathered ahead of the current one.
struct Prefetch {
  int forward = 0;
  int backward = 0;
};

/// What every pass works on. All of it outlives the pass.
struct PassPlace {
  World& world;
  Journal& journal;
  LiveUnits& units;
  TensorLives& lives;
  Prefetch prefetch;
};

/// Opens and closes units in program order: gathers their parameters, ahead of use too, and
/// releases them. An evaluation is exactly that; training adds gradients and micro-batches.
///
/// Order: all ranks open the same units in the same order.
/// Time:  everything enqueues.
class Pass {
 public:
  virtual ~Pass() = default;
  Pass(const Pass&) = delete;
  Pass& operator=(const Pass&) = delete;

  [[nodiscard]] int open_scopes() const noexcept { return open_scopes_; }
  /// Throws ContractError naming the units in open scopes, whose memory they hold; `what` requires
  /// that these have ended.
  void require_scopes_ended(const char* what) const;

 protected:
  /// `order`: the known order in which units are opened.
  Pass(const PassPlace& place, UseOrder& order)
      : place_{place},
        order_{order},
        gathers_{std::ranges::any_of(place.units.plans(), &UnitPlan::is_gathered)},
        spans_(place.units.size()) {}

  // Opening a unit, in this order:
  /// Throws ContractError if it is open.
  void require_closed(std::size_t unit) const;
  /// Releases the slot of a unit that was gathered ahead and not used next, if a slot is needed.
  /// Throws ContractError if open scopes hold all slots.
  void make_room(std::size_t unit);
  /// Gathers `use`'s unit and, following the order, the next ones.
  void bring(const Use& use, trace::Phase phase);
  /// From here on the compute stream may use it. `micro_batch`: number within the step.
  void enter(const Use& use, int micro_batch);
  /// Work enqueued from now on is the caller's.
  void begin_span(const Use& use);

  // Closing it:
  void end_span(const Use& use);
  void leave(const Use& use, int micro_batch, bool last);

  void release_parameters();

  [[nodiscard]] LiveUnits& units() const noexcept { return place_.units; }
  [[nodiscard]] LiveUnit& unit(std::size_t index) const { return place_.units[index]; }
  [[nodiscard]] std::vector<std::size_t> owners_and(std::size_t unit) const {
    return with_owners(place_.units.plans(), unit);
  }
  [[nodiscard]] Journal& journal() const noexcept { return place_.journal; }
  [[nodiscard]] World& world() const noexcept { return place_.world; }
  [[nodiscard]] UseOrder& order() const noexcept { return order_; }

 private:
  void gather_ahead();
  [[nodiscard]] int depth(UseKind kind) const noexcept;

  PassPlace place_;
  UseOrder& order_;
  bool gathers_;
  int open_scopes_ = 0;
  std::vector<Journal::Span> spans_;  // by unit: the span of its open scope
};

/// "'a' (gather, reduce), 'b' (gather)": the units in open scopes, and the memory that they hold.
[[nodiscard]] std::string names_of_open_units(const LiveUnits& units);

}  // namespace tessera::engine
