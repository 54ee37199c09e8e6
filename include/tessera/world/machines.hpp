#pragma once

#include <string>
#include <vector>

namespace tessera {

class World;

/// *Collective.* Returns the machine id of every rank, by rank: the environment variable
/// TESSERA_MACHINE if it is set, otherwise the machine's own id. Without `shard_group` and `mesh`,
/// hybrid shards among the ranks of one machine.
[[nodiscard]] std::vector<std::string> machines_of_ranks(World& world);

}  // namespace tessera
