#pragma once

#include <string>
#include <vector>

#include "engine/plan/unit_plan.hpp"
#include "tessera/optim/optimizer.hpp"

namespace tessera::engine {

/// How one parameter is trained: what its group and the decay rule make of the optimizer's values.
struct ParameterRule {
  float lr_scale = 1.0F;
  float weight_decay = 0.0F;

  friend bool operator==(const ParameterRule&, const ParameterRule&) = default;
};

/// By unit and parameter.
using ParameterRules = std::vector<std::vector<ParameterRule>>;

/// ConfigError that names the group if one is left without a trainable parameter: most likely its
/// predicate looks for a name that is not there.
[[nodiscard]] ParameterRules resolve_rules(const UnitPlans& units, const Optimizer& optimizer,
                                           const OptimizerOptions& options);

/// One line per trainable parameter; compared across ranks.
[[nodiscard]] std::string describe(const UnitPlans& units, const ParameterRules& rules);

}  // namespace tessera::engine
