#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "device/host_block.hpp"
#include "engine/plan/parameter_rules.hpp"
#include "engine/plan/sharding.hpp"
#include "engine/unit/live_units.hpp"
#include "kernels/step_scalars/step_scalars.hpp"
#include "tessera/engine/step_report.hpp"
#include "tessera/optim/optimizer.hpp"

namespace tessera::engine {

/// The optimizer's state for what this rank updates, and one step over it: the squared norm of each
/// shard, one all-reduce of norms and loss, then a fused pass over parameters and state that reads
/// the clip coefficient and the finite flag from device memory.
class OptimizerStep {
 public:
  /// What the optimizer is. `rules`: by unit and parameter.
  struct Setup {
    const ModelOptions& model;
    const Optimizer& optimizer;
    const OptimizerOptions& options;
    const ParameterRules& rules;
    const Sharding& group;
  };
  OptimizerStep(World& world, LiveUnits& units, const Setup& setup);
  OptimizerStep(const OptimizerStep&) = delete;
  OptimizerStep& operator=(const OptimizerStep&) = delete;
  ~OptimizerStep();

  /// *Collective.* Gradients and parameters have settled on the compute stream. `loss`: device
  /// memory or null; `count` likewise. The batch's label states the learning rate if it differs
  /// from the optimizer's own, so that ranks with different rates get an error.
  void reduce_scalars(const double* loss, const LossCount& count, const std::string& label);
  /// Updates what this rank holds, with the scalars of `reduce_scalars`. Offloaded units update
  /// beside the compute stream, in the order of `units`.
  void update(const std::vector<std::size_t>& units);

  void set_learning_rate(float lr);
  /// The frozen parameters of a unit have changed. Waits for updates in flight.
  void plan_runs(std::size_t unit);
  /// The outcome of an update. Waits until it is known, which is before parameters are updated.
  struct Outcome {
    const kernels::StepScalars& scalars;
    float learning_rate;
  };
  [[nodiscard]] Outcome last() const { return outcome(last_); }
  [[nodiscard]] Outcome before_last() const { return outcome(1 - last_); }
  [[nodiscard]] const kernels::StepScalars& scalars() const { return last().scalars; }
  /// The next step follows one that left `scalars`. Call it with no step under way. Waits.
  void continue_after(const kernels::StepScalars& scalars);
  /// The rule without its rate.
  [[nodiscard]] const Optimizer& rule() const noexcept { return optimizer_; }
  /// The number of states per element, and their format (fp32 for a user's optimizer).
  [[nodiscard]] int states() const noexcept { return state_count(optimizer_); }
  [[nodiscard]] MomentFormat moments() const noexcept { return options_.moments; }
  /// Device memory.
  [[nodiscard]] const float* loss_scale() const noexcept;
  [[nodiscard]] std::size_t persistent_bytes() const noexcept { return device_state_.bytes(); }
  [[nodiscard]] std::size_t host_bytes() const noexcept { return host_state_.bytes(); }

 private:
  /// Shards of a segment, end to end, whose squared norms this rank computes.
  struct NormTerms {
    View gradient;
    int first_shard = 0;
    int shards = 1;
  };

  /// The host memory that scalars are copied to.
  struct Returned {
    explicit Returned(Device& device) : scalars{device}, copied{device.make_event()} {}
    device::HostBlock<kernels::StepScalars> scalars;
    OwnedEvent copied;
    float learning_rate = 0.0F;
  };

  [[nodiscard]] Outcome outcome(std::size_t which) const;
  void take_state(const Setup& setup);
  void plan_norms(const Setup& setup);
  void add_norms(double* sums);
  void clear_sums();
  [[nodiscard]] std::string with_rate(const std::string& label) const;

  World& world_;
  LiveUnits& units_;
  kernels::FinishStep finish_;
  Optimizer optimizer_;  // without its rate:
  float learning_rate_;
  OptimizerOptions options_;
  ParameterRules rules_;
  Arena device_state_;
  Arena host_state_;  // of offloaded units
  std::vector<NormTerms> norms_;
  int shards_;       // shards of a segment
  int first_norm_;   // index of this rank's first norm, by shard
  bool tells_loss_;  // of ranks that compute the same loss, one reports it
  Buffer scalars_;   // StepScalars
  Buffer sums_;      // one squared norm a rank of the mesh, then the loss and what it counts
  // Used in turn: the previous one stays while the next is made.
  std::array<Returned, 2> returned_;
  std::size_t last_ = 0;
  OwnedEvent mark_;
};

}  // namespace tessera::engine
