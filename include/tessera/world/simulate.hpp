#pragma once

#include <functional>

#include "tessera/comm/backend.hpp"
#include "tessera/world/world.hpp"

namespace tessera {

/// Runs `body` as this one rank, on the calling thread, on the meta device: allocations are counted
/// but not made, kernels and World::compute are skipped, collectives move nothing, and what ranks
/// exchange is as if every rank had said what this one says. What World::memory counts is, to the
/// byte, what the same body would hold as that rank of a real job.
///
/// Errors:  what `body` throws. ConfigError if there is no such rank or this build knows no such
///          device.
void simulate_rank(const SimulatedRank& rank, const std::function<void(World&)>& body,
                   const WorldOptions& options = {});

}  // namespace tessera
