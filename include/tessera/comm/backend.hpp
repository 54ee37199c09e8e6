#pragma once

#include <cstdint>
#include <string_view>

#include "tessera/device/device.hpp"

namespace tessera {

/// The transport between a job's ranks.
enum class CommKind : std::uint8_t {
  local,  ///< the memory of one process, whose threads are the ranks
  mpi,    ///< MPI, one process a rank
  nccl,   ///< NCCL, one process and one GPU a rank
};

/// Returns "local", "mpi" or "nccl".
[[nodiscard]] std::string_view to_string(CommKind kind) noexcept;

/// The device and the communicator that a simulated rank stands for. The device is not `meta`;
/// `mpi` goes with `cpu` only, and `nccl` with `cuda` only.
struct Backend {
  DeviceKind device = DeviceKind::cpu;  ///< decides the workspace of kernels that is counted
  CommKind comm = CommKind::local;      ///< decides the staging memory that is counted
};

/// One rank of a job that is only simulated (simulate_rank).
struct SimulatedRank {
  int rank = 0;          ///< from 0 to ranks - 1
  int ranks = 1;         ///< ranks of the job, from 1 to 2^20
  Backend backend = {};  ///< the device and the communicator that it stands for
};

}  // namespace tessera
