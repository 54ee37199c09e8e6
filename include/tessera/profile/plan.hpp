#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "tessera/memory/tracker.hpp"
#include "tessera/world/mesh_shape.hpp"
#include "tessera/world/simulate.hpp"

namespace tessera {

/// The job that `plan` is asked about.
struct PlanOptions {
  int ranks = 1;            ///< ranks of the job
  Backend backend = {};     ///< the device and the communicator that they would use
  WorldOptions world = {};  ///< the options of every rank's World
  /// How the body arranges the ranks, if along `pipe` or `tensor`: ranks at different places along
  /// these hold different parts of a model. Empty: no such dimension.
  std::vector<MeshDim> mesh = {};
};

/// Ranks that hold the same.
struct PlannedRank {
  int rank = 0;   ///< the first of them
  int count = 1;  ///< how many they are
  /// All of them, in ascending order. Without a mesh they are neighbours.
  std::vector<int> ranks = {};
  MemoryReport memory;              ///< of each at the end of `body`, with the peaks over all of it
  std::size_t host_peak_bytes = 0;  ///< the peak of each one's host pool
};

/// Counts what each rank of a job would hold. It runs `body` on the meta device (simulate_rank),
/// once as rank 0 and once for all other ranks, which the strategies do not tell apart; of a mesh,
/// once for each place along `pipe` and `tensor`, and for rank 0. Ranks that hold the same at all
/// places along `tensor`, or at neighbouring places, are one PlannedRank, and so are those of
/// neighbouring places along `pipe`. There is no second model of memory: it counts what the engine,
/// the optimizer, the communicators and `body` itself ask for. A body that declares, materialises,
/// optimises and makes one step has asked for all that it will ever ask for. What is in use may
/// rise once more in the second step: the first gathers without prefetch unless the order of units
/// was declared.
///
/// Errors: what `body` throws; OutOfMemory if `options.world.budget_bytes` does not suffice;
///         ConfigError as simulate_rank, as MeshShape, and for a mesh of another number of ranks.
[[nodiscard]] std::vector<PlannedRank> plan(const PlanOptions& options,
                                            const std::function<void(World&)>& body);

}  // namespace tessera
