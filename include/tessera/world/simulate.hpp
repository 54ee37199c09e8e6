#pragma once

#include <functional>

#include "tessera/comm/backend.hpp"
#include "tessera/world/world.hpp"

namespace tessera {

/// Runs `body` as the given rank, on the calling thread, on the meta device. Allocations are
/// counted but not made, kernels and World::compute are skipped, and collectives move nothing.
/// Exchanges of texts return as if every rank had sent this rank's text. World::memory counts, to
/// the byte, what the same body would hold as that rank of a real job.
///
/// Errors: what `body` throws. ConfigError for a rank that is not in the job, for more than 2^20
///         ranks, for a backend on meta, for NCCL on CPUs or MPI on CUDA devices, and for invalid
///         options.
void simulate_rank(const SimulatedRank& rank, const std::function<void(World&)>& body,
                   const WorldOptions& options = {});

}  // namespace tessera
