#pragma once

#include <string>
#include <vector>

#include "checkpoint/load_source.hpp"
#include "checkpoint/manifest.hpp"
#include "checkpoint/tensor_writer.hpp"
#include "tessera/checkpoint/checkpoint.hpp"
#include "tessera/world/world.hpp"

namespace tessera {

/// ConfigError that names the first buffer that the checkpoint lacks, or has in another shape or
/// dtype, and one that the checkpoint has beside them.
void require_extras(const Manifest& manifest, const CheckpointExtras& extras,
                    const std::string& path);

/// *Collective.* Rank 0 reads the buffers and hands them on. `summed`: marks their tensors.
void load_extras(World& world, LoadSource& source, const CheckpointExtras& extras, SumTable& sums,
                 std::vector<bool>& summed);

}  // namespace tessera
