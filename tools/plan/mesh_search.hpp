#pragma once

#include <vector>

#include "tools/options/settings.hpp"

namespace tessera::tools {

/// Ranks per machine, within which a search keeps `tensor`, unless a profile has their number.
inline constexpr int kRanksOfMachine = 8;

/// Ways to split the model of `settings` over its ranks, each with the same global batch: ranks
/// along `tensor` within a machine of `machine_ranks`, then along `pipe`, and the rest along
/// `shard`. The fewest parts come first; among equal numbers of parts, the shorter pipeline. Empty
/// if --mesh or --shard-group was typed, and for one rank.
[[nodiscard]] std::vector<Settings> split_settings(const Settings& settings, int machine_ranks);

}  // namespace tessera::tools
