#pragma once

#include <string>
#include <vector>

namespace tessera {

class World;

/// *Collective.* Returns the id of every rank's machine, by rank: what TESSERA_MACHINE says, or the
/// machine's own. Where `shard_group` and `mesh` are not given, hybrid shards among the ranks of
/// one machine.
[[nodiscard]] std::vector<std::string> machines_of_ranks(World& world);

}  // namespace tessera
