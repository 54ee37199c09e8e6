#pragma once

#include <functional>

#include "tessera/world/launch.hpp"
#include "tessera/world/world.hpp"

namespace tessera::world {

// The entry to MPI, with mpi_version(): mpi_job.cpp if the build has found a library, otherwise
// no_mpi.cpp.

/// Runs `body` as this process's rank of `job`, and ends when all ranks have. Throws ConfigError if
/// this build has no MPI, or another MPI than `job`'s launcher.
void run_in_mpi_job(const LaunchedJob& job, const std::function<void(World&)>& body,
                    const WorldOptions& options);

}  // namespace tessera::world
