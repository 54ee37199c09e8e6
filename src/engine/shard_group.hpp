#pragma once

#include <string>
#include <vector>

#include "tessera/engine/sharded_model.hpp"
#include "tessera/world/world.hpp"

namespace tessera::engine {

/// How many ranks each machine has, given every rank's machine by rank; 0 unless they have as many
/// each, side by side.
[[nodiscard]] int ranks_of_each_machine(const std::vector<std::string>& machines);
/// *Collective.* How many ranks each machine of the job has. ConfigError if they have different
/// numbers of them, or not side by side.
[[nodiscard]] int ranks_of_a_machine(World& world);

/// ConfigError if a size is given that is none, or that nothing uses.
void check_shard_group(const ModelOptions& options, int ranks);

}  // namespace tessera::engine
