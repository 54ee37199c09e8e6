#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tessera/world/launch.hpp"
#include "tessera/world/world.hpp"
#include "tools/options/settings.hpp"

namespace tessera::tools {

/// Returns `strategies`, adapted to the arrangement of the ranks unless they were typed: with
/// --shard-group they include hybrid, with a --mesh that shards they exclude those that shard
/// nothing, and with a --mesh that splits the model dp.
[[nodiscard]] std::vector<Strategy> strategies_on(const Settings& settings,
                                                  std::vector<Strategy> strategies);

/// For a plan, on each number of `ranks`. ConfigError if --shard-group was typed and no strategy is
/// hybrid, if neither it nor --mesh was typed and a strategy is hybrid, or if it does not divide
/// the ranks.
void check_planned_groups(const Settings& settings, const std::vector<Strategy>& strategies,
                          const std::vector<int>& ranks);

/// The size of hybrid's shard groups in a run with settled ranks and communicator: the typed size,
/// or the number of ranks on this machine; 0 if the run is not hybrid or has a --mesh. ConfigError
/// if a size was typed for another strategy, if `job` does not tell how many ranks share a machine,
/// and unless the size divides the ranks.
[[nodiscard]] int settled_shard_group(const Settings& settings,
                                      const std::optional<LaunchedJob>& job);

/// Where the ranks of a job of processes run, as far as hybrid depends on it.
struct Placement {
  std::vector<std::size_t> groups;    ///< by rank: its settled group size, 0 for none
  std::vector<std::string> machines;  ///< by rank
};
/// *Collective.*
[[nodiscard]] Placement placement_of(World& world, const Settings& settings);

/// A launcher tells a process how many ranks share its machine, not which. ConfigError unless the
/// size of such groups is the same on all ranks and each group is on one machine. Typed sizes are
/// not checked.
void check_placement(const Settings& settings, const Placement& placement);

/// "zero3", "hybrid in groups of 8", "zero1 on mesh replicate 2 x shard 4": for people.
[[nodiscard]] std::string describe_strategy(const Settings& settings, Strategy strategy);

/// ", hybrid in groups of 8", ", on mesh replicate 2 x shard 4"; empty without either.
[[nodiscard]] std::string describe_groups(const Settings& settings);

}  // namespace tessera::tools
