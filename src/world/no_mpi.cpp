// Replaces mpi/mpi_job.cpp in a build without MPI.
#include <fmt/format.h>

#include "tessera/base/error.hpp"
#include "world/mpi_job.hpp"

namespace tessera {

std::string mpi_version() {
  return {};
}

void run_in_mpi_job(const LaunchedJob& job, const std::function<void(World&)>&,
                    const WorldOptions&) {
  throw ConfigError{fmt::format(
      "{} started this as one of {} processes ({}), but this build has no MPI: install it "
      "(Debian: libopenmpi-dev openmpi-bin), configure with -DTESSERA_MPI=ON and build again; or "
      "start one process whose ranks are threads (run_ranks, --ranks {})",
      job.launcher, job.size, job.variable, job.size)};
}

}  // namespace tessera
