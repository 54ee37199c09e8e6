#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tools/plan/planner.hpp"

namespace tessera::tools {

/// "4096 B by category" as an object: every category, including empty ones.
[[nodiscard]] nlohmann::ordered_json json_of(const CategoryBytes& bytes);
[[nodiscard]] nlohmann::ordered_json json_of(const ModelStateBytes& bytes);

/// An fp32 number with the fewest digits that identify it, rather than those of its fp64 value.
[[nodiscard]] double shortest(float value);

/// Adds the host pool's peak to a rank's object of plan --json or compare --json, unless it is 0.
void add_host_pool(nlohmann::ordered_json& rank, std::size_t planned_bytes, std::size_t bytes);

/// Adds "mesh" to `json`: {"replicate": 2, "shard": 4} in the order typed, and the values of a mesh
/// that splits the model. Does nothing without --mesh.
void add_mesh(nlohmann::ordered_json& json, const Settings& settings);

/// The place of `rank` along each dimension of --mesh, in the order typed; null without --mesh.
[[nodiscard]] nlohmann::ordered_json place_json(const Settings& settings, int rank);

/// The size of hybrid's shard groups; null without hybrid.
[[nodiscard]] nlohmann::ordered_json shard_group_json(const Settings& settings);

/// The document of `plan --json`.
[[nodiscard]] nlohmann::ordered_json plan_json(const Settings& settings,
                                               const std::vector<StrategyPlan>& plans);

/// The request of a plan, in a line or two.
[[nodiscard]] std::string describe_plan(const Settings& settings);

/// What each kind of rank holds under each strategy, at most 100 columns wide: bytes by category,
/// then what is in use at the peak, and whether it fits the budget.
[[nodiscard]] std::string plan_text(const Settings& settings,
                                    const std::vector<StrategyPlan>& plans);

}  // namespace tessera::tools
