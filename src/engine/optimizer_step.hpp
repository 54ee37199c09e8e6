#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "device/host_block.hpp"
#include "engine/journal.hpp"
#include "engine/update_plan.hpp"
#include "kernels/step_scalars/step_scalars.hpp"
#include "tessera/optim/optimizer.hpp"
#include "tessera/world/world.hpp"

namespace tessera::engine {

/// The optimizer's state for what this rank updates, and one step over it: squared norm by shard,
/// one all-reduce of the norms and the loss, then a fused pass over parameters and state that reads
/// the clip coefficient and the finite gate from device memory.
class OptimizerStep {
 public:
  OptimizerStep(World& world, const TrainingState& state, const ModelOptions& options,
                const Optimizer& optimizer, const OptimizerOptions& optimizer_options,
                const ParameterRules& rules, const Sharding& group);

  /// *Collective.* Gradients and parameters have settled on the compute stream. `loss`: device
  /// memory or null. The batch says the learning rate where that is not the optimizer's own, so
  /// that ranks whose rates differ are told.
  void reduce_scalars(const double* loss, const char* label);
  /// Updates what this rank holds, by the scalars that `reduce_scalars` has brought together:
  /// offloaded units on the host stream, in the order of `units`, and sends each on its way.
  void update(const std::vector<std::size_t>& units, Journal& journal);

  void set_learning_rate(float lr);
  [[nodiscard]] float learning_rate() const noexcept { return learning_rate_; }
  /// What an update did. Waits until it is known, which is before parameters are updated.
  struct Outcome {
    const kernels::StepScalars& scalars;
    float learning_rate;
  };
  [[nodiscard]] Outcome last() const { return outcome(last_); }
  [[nodiscard]] Outcome before_last() const { return outcome(1 - last_); }
  [[nodiscard]] const kernels::StepScalars& scalars() const { return last().scalars; }
  /// Device memory.
  [[nodiscard]] const float* loss_scale() const noexcept;
  [[nodiscard]] std::size_t persistent_bytes() const noexcept { return plan_.arena.bytes(); }
  [[nodiscard]] std::size_t host_bytes() const noexcept { return plan_.host_arena.bytes(); }

 private:
  /// Shards of a segment whose squared norms this rank computes, end to end.
  struct NormTerms {
    View gradient;
    int first_shard = 0;
    int shards = 1;
  };

  /// Where the host finds it.
  struct Returned {
    explicit Returned(Device& device) : scalars{device}, copied{device.make_event()} {}
    HostBlock<kernels::StepScalars> scalars;
    OwnedEvent copied;
    float learning_rate = 0.0F;
  };

  [[nodiscard]] Outcome outcome(std::size_t which) const;
  void update_on_device(Journal& journal);
  void plan_norms(const TrainingState& state, int mine);
  void add_norms(double* sums);
  void clear_sums();
  [[nodiscard]] std::string with_rate(const char* label) const;
  void update_on_host(const std::vector<std::size_t>& units, Returned& returned);
  void update_on_host(std::size_t unit, const kernels::StepScalars* scalars);

  World& world_;
  const Units& units_;
  HostGradients* host_gradients_;  // null unless units are offloaded
  HostWeights* host_weights_;      // the same
  StrategyTraits traits_;
  kernels::FinishStep finish_;
  Optimizer optimizer_;  // but for its rate:
  float learning_rate_;
  UpdatePlan plan_;
  std::vector<NormTerms> norms_;
  Buffer scalars_;  // StepScalars
  Buffer sums_;     // one squared norm a shard, then the loss
  // In turn: the one before stays while the next is made.
  std::array<Returned, 2> returned_;
  std::size_t last_ = 0;
  OwnedEvent mark_;
};

}  // namespace tessera::engine
