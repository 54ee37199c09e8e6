#pragma once

#include "tessera/comm/batch.hpp"

namespace tessera::comm {

/// Checks the contract of Batch as rank `rank` of `ranks` sees it. Throws ContractError naming the
/// batch and the entry.
void check(const Batch& batch, int rank, int ranks);

}  // namespace tessera::comm
