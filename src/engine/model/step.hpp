#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/model/loss_givers.hpp"
#include "engine/model/non_finite_search.hpp"
#include "engine/model/optimizer_step.hpp"
#include "engine/plan/use_order.hpp"
#include "engine/unit/journal.hpp"
#include "engine/unit/live_units.hpp"
#include "tessera/engine/step_report.hpp"

namespace tessera::engine {

/// The end of a step: reduces norms and loss, updates every unit, sends the changed parameters, and
/// reports the outcome. If a gradient is not finite, all ranks skip the step.
///
/// Time: `run` enqueues; the reports wait.
class Step {
 public:
  /// `journal`, `units` and the model's options outlive it. `passes`: all units in the order in
  /// which a forward pass opens them. *Collective.*
  Step(World& world, Journal& journal, LiveUnits& units, const OptimizerStep::Setup& setup,
       const std::vector<std::size_t>& passes);

  /// Throws ContractError, before anything changes, if a step with this `loss` and `count` would
  /// report or compute something else than the trainer means.
  void check(const double* loss, const LossCount& count);
  /// The units whose missing gradients count as zeros in the step that `run` makes next.
  void note_without_backward(std::vector<std::string> units) {
    without_backward_[static_cast<std::size_t>(made_ % 2)] = std::move(units);
  }
  /// *Collective.* All micro-batches have ended, and `check` has passed. `loss`: device memory or
  /// null. `count`: as for `check`. `order`: the order in which units were opened; it is compared
  /// across ranks when it is new. Throws ContractError, before anything is updated, if the wrong
  /// ranks give a loss in the first step. `gradients`: what the ranks' gradients must agree in, for
  /// the label of the step. Returns the order in which units are updated.
  std::vector<std::size_t> run(const double* loss, const LossCount& count, UseOrder& order,
                               const std::string& gradients);
  /// Throws NumericError, once, if too many steps in a row, including the last one, were skipped.
  /// Within a graph it is thrown later: the outcome is known when the graph has run.
  void check_if_stuck();

  void set_learning_rate(float lr) { optimizer_.set_learning_rate(lr); }
  /// The frozen parameters of a unit have changed.
  void plan_runs(std::size_t unit);
  /// Returns the loss scale in device memory, and notes that the trainer asked for it.
  [[nodiscard]] const float* tell_loss_scale() noexcept;
  /// The current loss scale, on the host. Waits.
  [[nodiscard]] float current_loss_scale() const { return optimizer_.scalars().loss_scale; }
  /// Steps made since the optimizer was given, or since `continue_after`.
  [[nodiscard]] std::int64_t made() const noexcept { return made_; }
  [[nodiscard]] StepReport report() const;
  [[nodiscard]] StepReport previous_report() const;
  [[nodiscard]] NonFiniteSearch& search() noexcept { return search_; }
  [[nodiscard]] const OptimizerStep& optimizer() const noexcept { return optimizer_; }
  /// Resumes after step `step` of another run, which left `scalars`. Call it with no step under
  /// way.
  void continue_after(std::int64_t step, const kernels::StepScalars& scalars);
  [[nodiscard]] std::size_t device_bytes() const noexcept { return optimizer_.persistent_bytes(); }
  [[nodiscard]] std::size_t host_bytes() const noexcept { return optimizer_.host_bytes(); }

 private:
  void require_loss_scale_known() const;
  void require_slots_free() const;
  void check_order_across_ranks(const UseOrder& order);
  [[nodiscard]] std::string describe_origin();  // collective

  World& world_;
  Journal& journal_;
  LiveUnits& units_;
  const ModelOptions& options_;
  OptimizerStep optimizer_;
  NonFiniteSearch search_;
  LossGivers givers_;
  std::string change_;  // of whether this rank gives a loss: for the label of the step
  std::string frozen_;  // the parameters that are frozen for now: for the same label
  bool in_stages_;
  std::int64_t made_ = 0;
  std::array<std::vector<std::string>, 2> without_backward_;  // by step, in turn
  bool loss_scale_asked_ = false;
  bool stuck_check_due_ = false;  // set after a step that may be the last of too many skipped
};

}  // namespace tessera::engine
