// Replaces mpi/mpi_job.cpp in a build without MPI.
#include <fmt/format.h>

#include "tessera/base/error.hpp"
#include "world/mpi_job.hpp"

namespace tessera {

std::string mpi_version() {
  return {};
}

void world::run_in_mpi_job(const LaunchedJob& job, const std::function<void(World&)>&,
                           const WorldOptions&) {
  throw ConfigError{fmt::format(
      "{}, but this build has no MPI: install it (Debian: libopenmpi-dev openmpi-bin), configure "
      "with -DTESSERA_MPI=ON and build again; or start one process whose ranks are threads "
      "(run_ranks, --comm local --ranks {}); {}",
      started_text(job), job.size, unset_text(job))};
}

}  // namespace tessera
