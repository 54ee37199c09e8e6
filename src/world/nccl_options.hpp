#pragma once

#include "tessera/world/world_options.hpp"

namespace tessera::world {

/// Throws ConfigError if an NCCL option is set although NCCL does not join the ranks.
void refuse_nccl_options(const NcclOptions& nccl);

}  // namespace tessera::world
