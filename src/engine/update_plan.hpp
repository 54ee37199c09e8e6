#pragma once

#include <span>
#include <vector>

#include "engine/gradient_store.hpp"
#include "engine/host_weights.hpp"
#include "engine/master_store.hpp"
#include "engine/parameter_rules.hpp"
#include "engine/parameter_store.hpp"
#include "kernels/update/update_run.hpp"
#include "tessera/world/world.hpp"

namespace tessera::engine {

/// Where a rank's share of the training state lies.
struct TrainingState {
  const Units& units;
  const ParameterStore& parameters;
  const GradientStore& gradients;
  const MasterStore& masters;
  HostWeights* host = nullptr;  ///< of offloaded units; null if there are none
};

/// The optimizer's state for what this rank updates, and the runs of elements that are updated
/// alike: neighbours in one segment whose parameters have one rule. Where it matters which
/// parameter an element belongs to (a user's optimizer, stochastic rounding, moments of 8 bits),
/// each run lies in one.
struct UpdatePlan {
  struct Run {
    kernels::UpdateRun update;
    ParameterRule rule;
    const ParameterInfo* parameter = nullptr;   ///< the first of the run
    std::vector<std::span<float>> states = {};  ///< a user's optimizer's
    std::size_t unit = 0;
  };

  /// Allocates the state and enqueues that it is zeroed.
  [[nodiscard]] static UpdatePlan make(World& world, const TrainingState& state,
                                       const Optimizer& optimizer, const OptimizerOptions& options,
                                       const ParameterRules& rules);

  Arena arena;
  Arena host_arena;       // of offloaded units
  std::vector<Run> runs;  // by unit, in order
};

}  // namespace tessera::engine
