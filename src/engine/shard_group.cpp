#include "engine/shard_group.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "base/machine.hpp"
#include "tessera/base/error.hpp"

namespace tessera::engine {
namespace {

std::string divisors(int ranks) {
  std::string text;
  for (int d = 1; d <= ranks; ++d) {
    if (ranks % d == 0) { text += fmt::format("{}{}", text.empty() ? "" : ", ", d); }
  }
  return text;
}

}  // namespace

int ranks_of_each_machine(const std::vector<std::string>& machines) {
  const auto first_elsewhere = std::ranges::find_if(
      machines, [&](const std::string& machine) { return machine != machines.front(); });
  const std::ptrdiff_t ranks = first_elsewhere - machines.begin();
  if (std::ssize(machines) % ranks != 0) { return 0; }
  std::set<std::string> seen;
  for (std::size_t rank = 0; rank < machines.size(); ++rank) {
    const bool begins = static_cast<std::ptrdiff_t>(rank) % ranks == 0;
    if (begins ? !seen.insert(machines[rank]).second : machines[rank] != machines[rank - 1]) {
      return 0;
    }
  }
  return static_cast<int>(ranks);
}

int ranks_of_a_machine(World& world) {
  const int ranks = ranks_of_each_machine(machines_of_ranks(world));
  if (ranks > 0) { return ranks; }
  throw ConfigError{fmt::format(
      "hybrid shards among the ranks of a machine, but machines hold different numbers of the {} "
      "ranks, or not side by side: start as many on each, machine after machine, or give the size "
      "of a shard group",
      world.size())};
}

void check_shard_group(const ModelOptions& options, int ranks) {
  if (options.shard_group == 0) { return; }
  if (options.strategy != Strategy::hybrid) {
    throw ConfigError{
        fmt::format("`shard_group` has no effect under {}: leave it alone, or choose hybrid",
                    to_string(options.strategy))};
  }
  if (options.shard_group < 0 || options.shard_group > ranks || ranks % options.shard_group != 0) {
    throw ConfigError{fmt::format(
        "shard_group is {}, and groups of so many do not make up {} ranks: choose one of {}",
        options.shard_group, ranks, divisors(ranks))};
  }
}

}  // namespace tessera::engine

namespace tessera {

std::vector<std::string> machines_of_ranks(World& world) {
  return world.exchange(machine_id());
}

}  // namespace tessera
