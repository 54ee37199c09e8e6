#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/plan/unit_plan.hpp"
#include "engine/plan/update_runs.hpp"
#include "engine/unit/gradient_home.hpp"
#include "engine/unit/parameter_home.hpp"
#include "engine/unit/state_ring.hpp"
#include "kernels/step_scalars/step_scalars.hpp"
#include "kernels/support/master_parts.hpp"
#include "tessera/engine/master_weights.hpp"
#include "tessera/optim/optimizer.hpp"

namespace tessera::kernels {
struct Table;
}

namespace tessera::engine {

/// Runs of several units. They outlive it.
using UpdateRuns = std::vector<const UpdateRun*>;

/// What the update of every unit in a step needs.
struct UpdateRule {
  const Optimizer& optimizer;  ///< without its rate; outlives the update
  float learning_rate;
  const kernels::StepScalars* on_device;  ///< clip coefficient and finite flag
  const kernels::StepScalars* on_host;    ///< the same values, valid until the step after the next
};

/// An array of some of a segment's elements that takes an initializer's values.
struct FirstValue {
  View values;
  kernels::MasterPart part;  ///< which part of a value it keeps
  bool on_host = false;
};

/// Where one unit is updated: the fp32 weights that this rank's optimizer updates, or the
/// remainders that complete its parameters, and from `train` on the optimizer's state.
///
/// Time: everything enqueues.
class UpdateHome {
 public:
  virtual ~UpdateHome() = default;
  UpdateHome(const UpdateHome&) = delete;
  UpdateHome& operator=(const UpdateHome&) = delete;

  /// What the optimizer updates of a segment: elements `Owned::updates`. Empty if there are none.
  [[nodiscard]] virtual UpdatedSegment updated(std::size_t segment) const = 0;
  /// The separate array in which masters begin; empty if there is none.
  [[nodiscard]] virtual FirstValue first_masters(std::size_t segment) const = 0;
  /// Called when parameters and masters have their first values on the compute stream.
  virtual void begin() {}

  /// Takes the state of `layout` from `arena`, and plans the runs.
  void train(const UpdateLayout& layout, const std::vector<ParameterRule>& rules, Arena& arena);
  /// Plans the runs anew: a parameter was frozen, or is trained again. No update is in flight.
  void plan_runs(const UpdateLayout& layout, const std::vector<ParameterRule>& rules);
  /// The optimizer's state for what this rank updates of a segment; empty before `train`, or if it
  /// updates nothing.
  [[nodiscard]] const std::vector<StateArray>& states(std::size_t segment) const noexcept {
    return states_[segment];
  }
  /// The next update waits for `copied`: until then its data is being copied.
  void hold(Event copied) { copies_.push_back(copied); }
  /// The stream that writes what is kept in the host pool; none if nothing is.
  [[nodiscard]] virtual Stream state_writer() const { return {}; }
  /// The most bytes that it uses in one slot of the StateRing at once; 0 if it does not use the
  /// ring.
  [[nodiscard]] virtual std::size_t piece_bytes() const { return 0; }
  /// No copy is in flight any more.
  void drop_holds() noexcept { copies_.clear(); }
  /// Updates, and sends what is updated elsewhere to the device. Runs that are updated on the
  /// device are added to `together`, for UpdatePool::update_together.
  virtual void update(const UpdateRule& rule, UpdateRuns& together) = 0;

 protected:
  explicit UpdateHome(const UnitPlan& plan) : plan_{plan}, states_(plan.segments()) {}
  [[nodiscard]] const UnitPlan& plan() const noexcept { return plan_; }
  [[nodiscard]] const std::vector<UpdateRun>& runs() const noexcept { return runs_; }
  /// `writer` is about to overwrite the state, and waits for copies of it.
  void await_copies(Stream writer);

 private:
  const UnitPlan& plan_;
  std::vector<UpdateRun> runs_;
  std::vector<std::vector<StateArray>> states_;  // by segment
  std::vector<Event> copies_;                    // copies in flight
};

/// Enqueues the updates of `runs` on `stream`, with kernels of `table`: all in one kernel call,
/// except for a user's optimizer. A group's rate scales the optimizer's.
void launch_updates(const kernels::Table& table, std::span<const UpdateRun* const> runs,
                    const Optimizer& optimizer, float learning_rate,
                    const kernels::StepScalars* scalars, Stream stream);

/// The masters of a segment, or their remainders, as a view without memory; empty if there are
/// none.
[[nodiscard]] View masters_of(const UnitPlan& plan, std::size_t segment, MasterWeights kind);
[[nodiscard]] kernels::MasterPart part_of(MasterWeights kind) noexcept;
/// The weights of a segment: `own` are the parameters, `kept` the view of masters_of, which holds
/// part `part` of them.
[[nodiscard]] UpdatedWeights weights_of(View own, View kept, kernels::MasterPart part,
                                        bool on_host) noexcept;

/// What the update homes of a model's units share: the memory of master weights, on the device and
/// in the host pool, and the ring through which parked state passes. It outlives them.
///
/// Memory: masters in the constructor; the ring in `take_ring`.
class UpdatePool {
 public:
  UpdatePool(World& world, const UnitPlans& plans, Journal& journal, MasterWeights masters);

  /// Call it once for each unit, in declaration order. `parameters` and `gradients` outlive the
  /// home.
  [[nodiscard]] std::unique_ptr<UpdateHome> make_home(std::size_t unit, ParameterHome& parameters,
                                                      const GradientHome& gradients);
  /// Updates on the device the runs that units left to be updated together.
  void update_together(const UpdateRule& rule, const UpdateRuns& together);
  /// Takes the ring for pieces of at most `piece_bytes`.
  void take_ring(std::size_t piece_bytes);
  void end_ring() noexcept { ring_ = StateRing{}; }
  /// `writer` overwrites scalars that updates in flight may still read on the device.
  void order_after_updates(Stream writer);
  /// Called before the updates of a step's offloaded units: the device's parameters may be
  /// overwritten once the work enqueued so far has read them, and `scalars` are in host memory.
  /// Returns false if there are no such units.
  [[nodiscard]] bool begin_offloaded(Event scalars);
  /// Waits for updates in flight.
  void wait();

  /// Without the ring, which only passes state through.
  [[nodiscard]] std::size_t device_bytes() const noexcept { return device_.bytes(); }
  [[nodiscard]] std::size_t host_bytes() const noexcept { return host_.bytes(); }

 private:
  World& world_;
  const UnitPlans& plans_;
  Journal& journal_;
  MasterWeights masters_;
  Offload offload_ = Offload::none;  // of those units that are
  Arena device_;
  Arena host_;
  StateRing ring_;
  OwnedEvent readers_;
  OwnedEvent mark_;
};

}  // namespace tessera::engine
