#pragma once

#include "tessera/world/world_options.hpp"

namespace tessera {

/// ConfigError, where NCCL does not join the ranks, if it is asked for something.
void refuse_nccl_options(const NcclOptions& nccl);

}  // namespace tessera
