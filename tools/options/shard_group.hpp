#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tessera/world/launch.hpp"
#include "tessera/world/world.hpp"
#include "tools/options/settings.hpp"

namespace tessera::tools {

/// Returns `strategies`, the default ones unless some were typed, as the ranks' arrangement asks
/// for: with --shard-group hybrid is among them, with a --mesh that shards none that shards
/// nothing, and with one that splits the model not dp. What was typed stays as it is.
[[nodiscard]] std::vector<Strategy> strategies_on(const Settings& settings,
                                                  std::vector<Strategy> strategies);

/// For what is only planned, on each number of `ranks`. ConfigError if --shard-group was typed and
/// none of `strategies` is hybrid, if neither it nor --mesh was and one is, or if it does not
/// divide the ranks.
void check_planned_groups(const Settings& settings, const std::vector<Strategy>& strategies,
                          const std::vector<int>& ranks);

/// The size of hybrid's shard groups in a run with settled ranks and communicator: what was typed,
/// or how many of the ranks are on this machine; 0 if the run is not of hybrid, or has a --mesh.
/// ConfigError if it was typed and the run is not, if `job` does not tell, and unless it divides
/// the ranks.
[[nodiscard]] int settled_shard_group(const Settings& settings,
                                      const std::optional<LaunchedJob>& job);

/// Where the ranks of a job of processes are, as far as hybrid asks.
struct Placement {
  std::vector<std::size_t> groups;  ///< by rank: what its settings have been settled to, 0 for none
  std::vector<std::string> machines;  ///< by rank
};
/// *Collective.*
[[nodiscard]] Placement placement_of(World& world, const Settings& settings);

/// A launcher tells a process how many share its machine, not which: ConfigError unless groups of
/// that size are the same on all ranks and each is on one machine. What was typed may be otherwise.
void check_placement(const Settings& settings, const Placement& placement);

/// "zero3", "hybrid in groups of 8", "zero1 on mesh replicate 2 x shard 4": for people.
[[nodiscard]] std::string describe_strategy(const Settings& settings, Strategy strategy);

/// ", hybrid in groups of 8", ", on mesh replicate 2 x shard 4"; empty where there is neither.
[[nodiscard]] std::string describe_groups(const Settings& settings);

}  // namespace tessera::tools
