#pragma once

#include <optional>
#include <string>

#include "tessera/device/device.hpp"

namespace tessera {

/// A job of processes that a launcher has started, of which this process is one rank: what run()
/// joins.
struct LaunchedJob {
  std::string launcher;  ///< "mpirun (Open MPI)", "srun (Slurm)", ...
  std::string variable;  ///< the environment variable that says how many processes there are
  int rank = 0;
  int size = 1;
  std::optional<int> on_machine = {};  ///< how many of them are on this machine, if it tells
};

/// The job that run() would join on devices of this kind, as the launcher's environment variables
/// tell. Starts nothing. Empty where run() is alone: without a launcher, or in a job of one process
/// that is not mpirun's (nor, on CUDA, torchrun's). ConfigError if the variables make no sense, or
/// if the launcher is torchrun and the device is a CPU: processes on the CPU are joined by MPI,
/// those on CUDA devices by NCCL.
[[nodiscard]] std::optional<LaunchedJob> launched_job(DeviceKind device = DeviceKind::cpu);

/// This process's number among those that a launcher has started, also where run() would refuse the
/// job; 0 without one. Never fails. It tells which process reports what all of them find.
[[nodiscard]] int launched_rank() noexcept;

/// The MPI library that this build uses: "Open MPI v4.1.4"; empty if it has none.
[[nodiscard]] std::string mpi_version();

}  // namespace tessera
