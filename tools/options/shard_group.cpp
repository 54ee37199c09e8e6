#include "tools/options/shard_group.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <span>

#include "tessera/base/error.hpp"
#include "tessera/engine/sharded_model.hpp"
#include "tessera/world/machines.hpp"
#include "tools/options/library_options.hpp"
#include "tools/options/mesh.hpp"
#include "tools/train/trainer.hpp"

namespace tessera::tools {
namespace {

bool has_hybrid(const std::vector<Strategy>& strategies) {
  return std::ranges::find(strategies, Strategy::hybrid) != strategies.end();
}

std::vector<int> divisors(int ranks) {
  std::vector<int> all;
  for (int d = 1; d <= ranks; ++d) {
    if (ranks % d == 0) { all.push_back(d); }
  }
  return all;
}

/// Advice on what to type if the launcher does not tell which ranks share a machine.
std::string remedy(int ranks) {
  return fmt::format("give --shard-group S, one of {}", fmt::join(divisors(ranks), ", "));
}

int ranks_of_machine(const LaunchedJob& job) {
  if (!job.on_machine) {
    throw ConfigError(fmt::format(
        "hybrid shards among the ranks of a machine, and {} does not report their number; {}",
        job.launcher, remedy(job.size)));
  }
  if (job.size % *job.on_machine != 0) {
    throw ConfigError(
        fmt::format("hybrid shards among the ranks of a machine, and groups of the {} that {} has "
                    "started on this one do not make up {}; {}",
                    *job.on_machine, job.launcher, job.size, remedy(job.size)));
  }
  return *job.on_machine;
}

}  // namespace

std::vector<Strategy> strategies_on(const Settings& settings, std::vector<Strategy> strategies) {
  if (settings.has("--strategies") || settings.has("--strategy")) { return strategies; }
  if (settings.has("--shard-group")) { strategies.push_back(Strategy::hybrid); }
  const bool splits = ranks_along(settings, "pipe") > 1 || ranks_along(settings, "tensor") > 1;
  if (splits) { std::erase(strategies, Strategy::dp); }
  if (ranks_along(settings, "shard") > 1) {
    std::erase_if(strategies, [](Strategy strategy) {
      return traits_of(strategy).optimizer != Holding::sharded;
    });
  }
  return strategies;
}

void check_planned_groups(const Settings& settings, const std::vector<Strategy>& strategies,
                          const std::vector<int>& ranks) {
  if (has_hybrid(strategies) && settings.sharded.shard_group == 0 &&
      settings.sharded.mesh.empty()) {
    throw ConfigError(
        "hybrid: a plan does not know which ranks share a machine; give --shard-group S, the ranks "
        "that share one copy of the model states, such as 8");
  }
  check_with_library(settings, strategies, ranks);
}

int settled_shard_group(const Settings& settings, const std::optional<LaunchedJob>& job) {
  if (!has_hybrid(strategies_of(settings))) { return settings.sharded.shard_group; }
  if (settings.sharded.shard_group > 0 || !settings.sharded.mesh.empty()) {
    return settings.sharded.shard_group;
  }
  const bool threads = settings.comm == CommChoice::local || !job;
  return threads ? settings.ranks : ranks_of_machine(*job);
}

Placement placement_of(World& world, const Settings& settings) {
  return {every_rank(world, static_cast<std::size_t>(settings.sharded.shard_group)),
          machines_of_ranks(world)};
}

void check_placement(const Settings& settings, const Placement& placement) {
  if (settings.has("--shard-group")) { return; }
  const auto& [groups, machines] = placement;
  const auto other = std::ranges::find_if(groups, [&](auto n) { return n != groups.front(); });
  if (other != groups.end()) {
    throw ConfigError(fmt::format(
        "hybrid shards among the ranks of a machine, of which there are {} with rank 0 and {} with "
        "rank {}; {}, or start as many on each",
        groups.front(), *other, other - groups.begin(), remedy(settings.ranks)));
  }
  const auto group = static_cast<std::size_t>(settings.sharded.shard_group);
  if (group == 0) { return; }
  const auto of_one = [&](std::size_t first) {
    return std::ranges::all_of(std::span{machines}.subspan(first, group),
                               [&](const auto& machine) { return machine == machines[first]; });
  };
  std::size_t first = 0;
  while (first < machines.size() && of_one(first)) { first += group; }
  if (first == machines.size()) { return; }
  throw ConfigError(fmt::format(
      "hybrid shards among the ranks of a machine, and ranks {} to {} are not on one, as "
      "where ranks are dealt out in turn; {}, or place them machine after machine (mpirun --map-by "
      "slot, srun --distribution block)",
      first, first + group - 1, remedy(settings.ranks)));
}

std::string describe_strategy(const Settings& settings, Strategy strategy) {
  if (!settings.sharded.mesh.empty()) {
    return fmt::format("{} on mesh {}{}", to_string(strategy),
                       MeshShape{settings.sharded.mesh}.to_string(), describe_parallel(settings));
  }
  const std::string groups = strategy == Strategy::hybrid
                                 ? fmt::format(" in groups of {}", settings.sharded.shard_group)
                                 : std::string{};
  return fmt::format("{}{}", to_string(strategy), groups);
}

std::string describe_groups(const Settings& settings) {
  if (!settings.sharded.mesh.empty()) {
    return fmt::format(", on mesh {}{}", MeshShape{settings.sharded.mesh}.to_string(),
                       describe_parallel(settings));
  }
  return settings.sharded.shard_group > 0 ? ", " + describe_strategy(settings, Strategy::hybrid)
                                          : "";
}

}  // namespace tessera::tools
