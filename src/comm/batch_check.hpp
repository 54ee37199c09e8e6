#pragma once

#include "tessera/comm/batch.hpp"

namespace tessera {

/// The contract of Batch, as rank `rank` of `ranks` sees it. ContractError that names the batch and
/// the entry.
void check(const Batch& batch, int rank, int ranks);

}  // namespace tessera
