#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "tools/plan/planner.hpp"

namespace tessera::tools {

/// Whether no rank would hold more than `budget_bytes`.
[[nodiscard]] bool fits(const StrategyPlan& plan, std::size_t budget_bytes);

/// What was planned before advice is given.
enum class Tried : std::uint8_t { one_strategy, all_strategies };

/// Advice that could lower the peak of the fullest rank, given the category that takes the most.
[[nodiscard]] std::string advice(const StrategyPlan& plan, const Settings& settings, Tried tried);

/// OutOfMemory, with the composition of the fullest rank and advice, unless `plan` fits the budget
/// of `settings`, or there is no budget.
void require_budget(const StrategyPlan& plan, const Settings& settings);

}  // namespace tessera::tools
