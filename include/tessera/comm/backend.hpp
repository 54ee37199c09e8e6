#pragma once

#include <cstdint>
#include <string_view>

#include "tessera/device/device.hpp"

namespace tessera {

/// What the ranks of a job talk through.
enum class CommKind : std::uint8_t { local, mpi, nccl };

/// "local", "mpi", "nccl".
[[nodiscard]] std::string_view to_string(CommKind kind) noexcept;

/// What a simulation counts for.
struct Backend {
  DeviceKind device = DeviceKind::cpu;  ///< whose kernels' workspace
  CommKind comm = CommKind::local;      ///< whose staging
};

/// One rank of a job that does not run.
struct SimulatedRank {
  int rank = 0;
  int ranks = 1;  ///< up to 2^20
  Backend backend = {};
};

}  // namespace tessera
