#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include "tessera/comm/world.hpp"

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
