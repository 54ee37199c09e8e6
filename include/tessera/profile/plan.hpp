#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "tessera/memory/tracker.hpp"
#include "tessera/world/simulate.hpp"

namespace tessera {

/// The job that `plan` is asked about.
struct PlanOptions {
  int ranks = 1;            ///< ranks of the job
  Backend backend = {};     ///< the device and the communicator that they would use
  WorldOptions world = {};  ///< the options of every rank's World
};

/// Ranks that hold the same.
struct PlannedRank {
  int rank = 0;                     ///< the first of them
  int count = 1;                    ///< how many they are
  MemoryReport memory;              ///< of each at the end of `body`, with the peaks over all of it
  std::size_t host_peak_bytes = 0;  ///< the peak of each one's host pool
};

/// Counts what each rank of a job would hold. It runs `body` on the meta device (simulate_rank),
/// once as rank 0 and once for all other ranks, which the strategies do not tell apart. There is no
/// second model of memory: it counts what the engine, the optimizer, the communicators and `body`
/// itself ask for. A body that declares, materialises, optimises and makes one step has asked for
/// all that it will ever ask for. What is in use may rise once more in the second step: the first
/// gathers without prefetch unless the order of units was declared.
///
/// Errors: what `body` throws; OutOfMemory if `options.world.budget_bytes` does not suffice;
///         ConfigError as simulate_rank.
[[nodiscard]] std::vector<PlannedRank> plan(const PlanOptions& options,
                                            const std::function<void(World&)>& body);

}  // namespace tessera
