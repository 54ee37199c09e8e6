#pragma once

#include <functional>

#include "tessera/world/launch.hpp"
#include "tessera/world/world.hpp"

namespace tessera {

// The door to MPI, with mpi_version(): mpi_job.cpp where the build has found a library, no_mpi.cpp
// where it has not.

/// Runs `body` as this process's rank of `job`, and ends when all ranks have. ConfigError if this
/// build has no MPI, or one that `job`'s launcher does not belong to.
void run_in_mpi_job(const LaunchedJob& job, const std::function<void(World&)>& body,
                    const WorldOptions& options);

}  // namespace tessera
