#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "tessera/memory/tracker.hpp"
#include "tessera/world/mesh_shape.hpp"
#include "tessera/world/simulate.hpp"

namespace tessera {

/// The job that `plan` simulates.
struct PlanOptions {
  int ranks = 1;            ///< the number of ranks
  Backend backend = {};     ///< the device and the communicator of the ranks
  WorldOptions world = {};  ///< the options of every rank's World
  /// The mesh that the body uses, if it has `pipe` or `tensor`: ranks at different places along
  /// these hold different parts of a model. Empty: no such dimension.
  std::vector<MeshDim> mesh = {};
  /// Returns what distinguishes the ranks at a place along `tensor`, such as the sizes of their
  /// parts: of places with equal texts only the first is run, at each place along `pipe`. Empty:
  /// every place is run. It saves most of the time where `tensor` is long.
  std::function<std::string(int tensor)> tensor_key = {};
};

/// The memory of a group of ranks that hold the same bytes.
struct PlannedRank {
  int rank = 0;   ///< the first of the ranks
  int count = 1;  ///< the number of the ranks
  /// All ranks of the group, in ascending order. Without a mesh they are neighbours.
  std::vector<int> ranks = {};
  MemoryReport memory;              ///< each rank's memory at the end of `body`, with its peaks
  std::size_t host_peak_bytes = 0;  ///< the peak of each rank's host pool
  /// What models decided about their memory: MemoryTracker::notes.
  std::vector<std::string> notes = {};
};

/// Counts the memory that each rank of a job would hold. It runs `body` on the meta device
/// (simulate_rank): once as rank 0 and once for all other ranks, which hold the same under every
/// strategy; on a mesh, as rank 0 and once for each place along `pipe` and each kind of place along
/// `tensor`. Neighbouring places whose ranks hold the same are one PlannedRank.
///
/// No second model of memory is involved: the plan counts what the engine, the optimizer, the
/// communicators and `body` itself allocate. A body that declares, materializes, calls
/// optimize_with and makes one step has allocated everything. The memory in use may still rise in
/// the second step, since the first gathers without prefetch unless the order of units was
/// declared.
///
/// Errors: what `body` throws. OutOfMemory if `options.world.budget_bytes` does not suffice.
///         ConfigError as simulate_rank and MeshShape, and for a mesh of another number of ranks.
[[nodiscard]] std::vector<PlannedRank> plan(const PlanOptions& options,
                                            const std::function<void(World&)>& body);

}  // namespace tessera
