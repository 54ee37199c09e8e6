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

/// What an update follows, for every unit of a step.
struct UpdateRule {
  const Optimizer& optimizer;  ///< but for its rate; outlives the update
  float learning_rate;
  const kernels::StepScalars* on_device;  ///< clip coefficient and finite gate
  const kernels::StepScalars* on_host;    ///< the same, until the step after the next
};

/// An array of some of a segment's elements in which an initializer's values are kept.
struct FirstValue {
  View values;
  kernels::MasterPart part;  ///< which part of a value
  bool on_host = false;
};

/// Where one unit is updated: the fp32 weights of what this rank's optimizer updates, or what
/// completes the parameters to them, and from `train` on the optimizer's state.
///
/// Time: everything enqueues.
class UpdateHome {
 public:
  virtual ~UpdateHome() = default;
  UpdateHome(const UpdateHome&) = delete;
  UpdateHome& operator=(const UpdateHome&) = delete;

  /// What the optimizer updates of a segment: elements `Owned::updates`. Empty where those are
  /// none.
  [[nodiscard]] virtual UpdatedSegment updated(std::size_t segment) const = 0;
  /// Where masters start from, beside the parameters; empty values if there are none.
  [[nodiscard]] virtual FirstValue first_masters(std::size_t segment) const = 0;
  /// Parameters have their first values on the compute stream, and masters theirs.
  virtual void begin() {}

  /// The runs of `layout`, with state from `arena`.
  void train(const UpdateLayout& layout, const std::vector<ParameterRule>& rules, Arena& arena);
  /// The optimizer's state for what this rank updates of a segment; empty before `train` and where
  /// it updates nothing.
  [[nodiscard]] const std::vector<StateArray>& states(std::size_t segment) const noexcept {
    return states_[segment];
  }
  /// The next update waits for `copied`: what it writes is being copied until then.
  void hold(Event copied) { copies_.push_back(copied); }
  /// No copy is under way any more.
  void drop_holds() noexcept { copies_.clear(); }
  /// Updates, and sends what is updated elsewhere on its way to the device. What is updated on the
  /// device joins the runs that UpdatePool::update_together is given.
  virtual void update(const UpdateRule& rule, UpdateRuns& together) = 0;

 protected:
  explicit UpdateHome(const UnitPlan& plan) : plan_{plan}, states_(plan.segments()) {}
  [[nodiscard]] const UnitPlan& plan() const noexcept { return plan_; }
  [[nodiscard]] const std::vector<UpdateRun>& runs() const noexcept { return runs_; }
  /// `writer` overwrites what is updated, and waits for copies of it.
  void await_copies(Stream writer);

 private:
  const UnitPlan& plan_;
  std::vector<UpdateRun> runs_;
  std::vector<std::vector<StateArray>> states_;  // by segment
  std::vector<Event> copies_;                    // under way
};

/// Enqueues the updates of `runs` on `stream`, with kernels of `table`: all in one call of a
/// kernel, but for a user's optimizer. A group's rate follows the optimizer's.
void launch_updates(const kernels::Table& table, std::span<const UpdateRun* const> runs,
                    const Optimizer& optimizer, float learning_rate,
                    const kernels::StepScalars* scalars, Stream stream);

/// What the update homes of a model's units share: the memory of master weights, on the device and
/// in the host pool. It outlives them.
///
/// Memory: all of it taken in the constructor; it holds anything.
class UpdatePool {
 public:
  UpdatePool(World& world, const UnitPlans& plans, Journal& journal, MasterWeights masters);

  /// Once for each unit, in the order of declaration. `parameters` and `gradients` outlive it.
  [[nodiscard]] std::unique_ptr<UpdateHome> make_home(std::size_t unit, ParameterHome& parameters,
                                                      const GradientHome& gradients);
  /// Updates on the device what units have left to be updated together.
  void update_together(const UpdateRule& rule, const UpdateRuns& together);
  /// Before the updates of a step: the device's parameters of offloaded units may be overwritten
  /// when what is enqueued so far has read them, and `scalars` are in host memory.
  void begin_host_updates(Event scalars);

  [[nodiscard]] std::size_t device_bytes() const noexcept { return device_.bytes(); }
  [[nodiscard]] std::size_t host_bytes() const noexcept { return host_.bytes(); }

 private:
  World& world_;
  const UnitPlans& plans_;
  Journal& journal_;
  MasterWeights masters_;
  Arena device_;
  Arena host_;
  OwnedEvent readers_;
};

}  // namespace tessera::engine
