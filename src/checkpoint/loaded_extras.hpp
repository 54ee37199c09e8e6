#pragma once

#include <string>
#include <vector>

#include "checkpoint/checksum.hpp"
#include "checkpoint/load_source.hpp"
#include "checkpoint/manifest.hpp"
#include "tessera/checkpoint/checkpoint.hpp"
#include "tessera/world/world.hpp"

namespace tessera::checkpoint {

/// Throws ConfigError naming the first buffer that the checkpoint lacks or has with another shape
/// or dtype, and a buffer that only the checkpoint has.
void require_extras(const Manifest& manifest, const CheckpointExtras& extras,
                    const std::string& path);

/// *Collective.* Rank 0 reads the buffers and sends them to the others. `summed`: marks their
/// tensors.
void load_extras(World& world, LoadSource& source, const CheckpointExtras& extras, SumTable& sums,
                 std::vector<bool>& summed);

}  // namespace tessera::checkpoint
