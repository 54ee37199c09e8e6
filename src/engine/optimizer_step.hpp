#pragma once

#include <cstdint>
#include <vector>

#include "engine/gradient_store.hpp"
#include "engine/journal.hpp"
#include "engine/master_store.hpp"
#include "engine/parameter_store.hpp"
#include "kernels/step_scalars/step_scalars.hpp"
#include "kernels/update/update_run.hpp"
#include "tessera/comm/world.hpp"
#include "tessera/optim/optimizer.hpp"

namespace tessera::engine {

/// The optimizer's state for what this rank updates, and one step over it: squared norm by shard,
/// one all-reduce of the norms and the loss, then a fused pass over parameters and state that reads
/// the clip coefficient and the finite gate from device memory.
class OptimizerStep {
 public:
  OptimizerStep(World& world, const Units& units, const ParameterStore& parameters,
                const GradientStore& gradients, const MasterStore& masters,
                const ModelOptions& options, const Optimizer& optimizer,
                const OptimizerOptions& optimizer_options);

  /// *Collective.* Gradients and parameters have settled on the compute stream. `loss`: device
  /// memory or null.
  void reduce_scalars(const double* loss, const char* label);
  /// Updates what this rank holds, by the scalars that `reduce_scalars` has brought together.
  void update();

  void set_learning_rate(float lr);
  [[nodiscard]] float learning_rate() const;
  /// That of the last `update`.
  [[nodiscard]] float last_learning_rate() const noexcept { return last_learning_rate_; }
  /// Of the last `update`: waits until they are there, which is before parameters are.
  [[nodiscard]] const kernels::StepScalars& scalars() const;
  /// Device memory.
  [[nodiscard]] const float* loss_scale() const noexcept;
  [[nodiscard]] std::size_t persistent_bytes() const noexcept { return state_.bytes(); }

 private:
  /// Elements that are updated alike: neighbours in one segment, parameters that decay or do not.
  struct Run {
    kernels::UpdateRun update;
    bool decays = true;
  };
  /// One rank's shard of one segment, as far as this rank computes its squared norm.
  struct NormTerm {
    ConstValues gradient;
    std::int64_t elems = 0;
    int rank = 0;
  };

  /// Of one array of the rule's state.
  [[nodiscard]] std::size_t moment_bytes(std::int64_t elems) const noexcept;
  /// What this rank updates of a segment, its state taken from the arena.
  [[nodiscard]] kernels::UpdateRun whole_run(std::size_t unit, std::size_t segment);
  void plan_norms();
  void plan_runs(const OptimizerOptions& options);
  void plan_segment(std::size_t unit, std::size_t segment, const OptimizerOptions& options);

  World& world_;
  const Units& units_;
  const ParameterStore& parameters_;
  const GradientStore& gradients_;
  const MasterStore& masters_;
  StrategyTraits traits_;
  kernels::FinishStep finish_;
  Optimizer optimizer_;
  float last_learning_rate_ = 0.0F;
  Arena state_;
  std::vector<Run> runs_;
  std::vector<NormTerm> norms_;
  Buffer scalars_;  // StepScalars
  Buffer sums_;     // one squared norm a rank, then the loss
  kernels::StepScalars host_scalars_;
  OwnedEvent scalars_copied_;
  OwnedEvent mark_;
};

}  // namespace tessera::engine
