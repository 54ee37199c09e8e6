#pragma once

#include <string>
#include <vector>

#include "engine/plan/unit_plan.hpp"
#include "tessera/optim/optimizer.hpp"

namespace tessera::engine {

/// How one parameter is trained: the optimizer's values after its group and the decay rule.
struct ParameterRule {
  float lr_scale = 1.0F;
  float weight_decay = 0.0F;

  friend bool operator==(const ParameterRule&, const ParameterRule&) = default;
};

/// Indexed by unit and parameter.
using ParameterRules = std::vector<std::vector<ParameterRule>>;

/// Throws ConfigError naming the group if a group has no trainable parameter: its predicate
/// probably looks for a name that does not exist.
[[nodiscard]] ParameterRules resolve_rules(const UnitPlans& units, const Optimizer& optimizer,
                                           const OptimizerOptions& options);

/// One line per trainable parameter; compared across ranks.
[[nodiscard]] std::string describe(const UnitPlans& units, const ParameterRules& rules);

}  // namespace tessera::engine
