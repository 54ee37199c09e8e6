#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "tools/plan/planner.hpp"

namespace tessera::tools {

/// Whether no rank would hold more than `budget_bytes`.
[[nodiscard]] bool fits(const StrategyPlan& plan, std::size_t budget_bytes);

/// What has been planned before something is advised.
enum class Tried : std::uint8_t { one_strategy, all_strategies };

/// What could make the fullest rank hold less, after what takes the most.
[[nodiscard]] std::string advice(const StrategyPlan& plan, const Settings& settings, Tried tried);

/// OutOfMemory, with the composition of the fullest rank and what to do, unless `plan` fits the
/// budget of `settings`, if there is one.
void require_budget(const StrategyPlan& plan, const Settings& settings);

}  // namespace tessera::tools
