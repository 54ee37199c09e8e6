#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "tessera/memory/tracker.hpp"
#include "tessera/world/simulate.hpp"

namespace tessera {

struct PlanOptions {
  int ranks = 1;
  Backend backend = {};  ///< that the plan is for
  WorldOptions world = {};
};

/// Ranks that hold the same, by their first.
struct PlannedRank {
  int rank = 0;
  int count = 1;
  MemoryReport memory;              ///< at the end of `body`; peaks over all of it
  std::size_t host_peak_bytes = 0;  ///< of its host pool
};

/// What each rank of a job would hold: runs `body` on the meta device (simulate_rank), once as rank
/// 0 and once for all the others, as the strategies tell no others apart. No second model of
/// memory: what is counted is what the engine, the optimizer, the communicators and `body` itself
/// ask for. A body that declares, materialises, optimises and makes one step has asked for all that
/// it will ever ask for. What is in use may rise once more in its second step: the first gathers
/// without prefetch unless the order of units was declared.
///
/// Errors: what `body` throws; OutOfMemory if `options.world.budget_bytes` does not suffice.
[[nodiscard]] std::vector<PlannedRank> plan(const PlanOptions& options,
                                            const std::function<void(World&)>& body);

}  // namespace tessera
