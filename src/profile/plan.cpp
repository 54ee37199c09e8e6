#include "tessera/profile/plan.hpp"

namespace tessera {
namespace {

bool alike(const PlannedRank& one, const PlannedRank& other) {
  const MemoryReport& a = one.memory;
  const MemoryReport& b = other.memory;
  return a.live == b.live && a.at_peak == b.at_peak && a.most_in_use == b.most_in_use &&
         a.by_phase == b.by_phase && one.host_peak_bytes == other.host_peak_bytes;
}

PlannedRank planned(const PlanOptions& options, int rank, int count,
                    const std::function<void(World&)>& body) {
  PlannedRank planned{.rank = rank, .count = count, .memory = {}};
  simulate_rank(
      {.rank = rank, .ranks = options.ranks, .backend = options.backend},
      [&](World& world) {
        body(world);
        planned.memory = world.memory().report();
        planned.host_peak_bytes = world.host_memory().report().peak_bytes;
      },
      options.world);
  return planned;
}

}  // namespace

std::vector<PlannedRank> plan(const PlanOptions& options, const std::function<void(World&)>& body) {
  std::vector<PlannedRank> ranks{planned(options, 0, 1, body)};
  if (options.ranks == 1) { return ranks; }
  PlannedRank others = planned(options, 1, options.ranks - 1, body);
  if (alike(ranks[0], others)) {
    ranks[0].count = options.ranks;
    return ranks;
  }
  ranks.push_back(std::move(others));
  return ranks;
}

}  // namespace tessera
