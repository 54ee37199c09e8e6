#pragma once

#include <string>
#include <vector>

#include "tessera/world/world.hpp"
#include "tools/options/settings.hpp"

namespace tessera::tools {

/// *Collective.* Returns a line for each rank of a job of processes on a mesh of two or more
/// dimensions: "rank 2 (pipe 1, shard 0): process 4711 on node3". A launcher names a killed
/// process by its rank alone. Returns none otherwise.
[[nodiscard]] std::vector<std::string> rank_places(World& world, const Settings& settings);

}  // namespace tessera::tools
