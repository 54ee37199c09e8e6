#include "tessera/profile/plan.hpp"

namespace tessera {
namespace {

bool alike(const MemoryReport& a, const MemoryReport& b) {
  return a.live == b.live && a.at_peak == b.at_peak && a.most_in_use == b.most_in_use &&
         a.by_phase == b.by_phase;
}

MemoryReport planned(const PlanOptions& options, int rank,
                     const std::function<void(World&)>& body) {
  MemoryReport report;
  simulate_rank(
      {.rank = rank, .ranks = options.ranks, .backend = options.backend},
      [&](World& world) {
        body(world);
        report = world.memory().report();
      },
      options.world);
  return report;
}

}  // namespace

std::vector<PlannedRank> plan(const PlanOptions& options, const std::function<void(World&)>& body) {
  std::vector<PlannedRank> ranks{{0, 1, planned(options, 0, body)}};
  if (options.ranks == 1) { return ranks; }
  PlannedRank others{1, options.ranks - 1, planned(options, 1, body)};
  if (alike(ranks[0].memory, others.memory)) {
    ranks[0].count = options.ranks;
    return ranks;
  }
  ranks.push_back(std::move(others));
  return ranks;
}

}  // namespace tessera
