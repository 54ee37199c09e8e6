#pragma once

#include <optional>
#include <string>

#include "tessera/device/device.hpp"

namespace tessera {

/// A job of processes that a launcher has started, and this process's place in it. run() joins it.
struct LaunchedJob {
  std::string launcher;  ///< The launcher's name: "mpirun (Open MPI)", "srun (Slurm)", ...
  std::string variable;  ///< The environment variable that gives the number of processes.
  int rank = 0;          ///< This process's number in the job, from 0.
  int size = 1;          ///< The number of processes in the job.
  std::optional<int> on_machine = {};  ///< The number of processes on this machine, if given.
};

/// Returns how errors name the job: "torchrun started this as one of 4 processes (WORLD_SIZE)".
[[nodiscard]] std::string started_text(const LaunchedJob& job);
/// Returns the way out where the variables are stale: "if it did not, unset WORLD_SIZE".
[[nodiscard]] std::string unset_text(const LaunchedJob& job);

/// Returns the job that run() would join on devices of this kind, according to the launcher's
/// environment variables, and starts nothing. The result is empty where run() runs alone: without a
/// launcher (the shell of a Slurm allocation or batch job has none), or in a job of one process
/// that mpirun (on CUDA also torchrun) did not start. Throws ConfigError if the variables make no
/// sense, or if torchrun started several processes and the device is a CPU: MPI joins processes on
/// the CPU, and NCCL joins processes on CUDA devices.
[[nodiscard]] std::optional<LaunchedJob> launched_job(DeviceKind device = DeviceKind::cpu);

/// Returns this process's number among those that a launcher has started, even where run() would
/// refuse the job, and 0 without a launcher. It never fails. A program uses it to let only one
/// process report an error that all processes find.
[[nodiscard]] int launched_rank() noexcept;

/// Returns the MPI library that this build uses, such as "Open MPI v4.1.4", or an empty text if it
/// has none.
[[nodiscard]] std::string mpi_version();

}  // namespace tessera
