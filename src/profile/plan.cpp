#include "tessera/profile/plan.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace tessera {
namespace {

bool alike(const PlannedRank& one, const PlannedRank& other) {
  const MemoryReport& a = one.memory;
  const MemoryReport& b = other.memory;
  return a.live == b.live && a.at_peak == b.at_peak && a.most_in_use == b.most_in_use &&
         a.by_phase == b.by_phase && one.host_peak_bytes == other.host_peak_bytes;
}

/// The ranks at each place along `pipe`, and there at each along `tensor`, in ascending order.
std::vector<std::vector<std::vector<int>>> ranks_by_place(const PlanOptions& options) {
  const MeshShape mesh{options.mesh.empty() ? std::vector<MeshDim>{{"shard", options.ranks}}
                                            : options.mesh};
  require_ranks(mesh, options.ranks);
  std::vector<std::vector<std::vector<int>>> places(
      static_cast<std::size_t>(mesh.size("pipe")),
      std::vector<std::vector<int>>(static_cast<std::size_t>(mesh.size("tensor"))));
  const MeshGroups pipe = mesh.along({"pipe"});
  const MeshGroups tensor = mesh.along({"tensor"});
  for (int rank = 0; rank < options.ranks; ++rank) {
    places[static_cast<std::size_t>(pipe.index_of(rank))]
          [static_cast<std::size_t>(tensor.index_of(rank))]
              .push_back(rank);
  }
  return places;
}

PlannedRank planned(const PlanOptions& options, std::vector<int> ranks,
                    const std::function<void(World&)>& body) {
  PlannedRank planned{.rank = ranks.front(),
                      .count = static_cast<int>(ranks.size()),
                      .ranks = std::move(ranks),
                      .memory = {}};
  simulate_rank(
      {.rank = planned.rank, .ranks = options.ranks, .backend = options.backend},
      [&](World& world) {
        body(world);
        planned.memory = world.memory().report();
        planned.host_peak_bytes = world.host_memory().report().peak_bytes;
      },
      options.world);
  return planned;
}

/// Makes `one` stand for the ranks of `other` too.
void join(PlannedRank& one, const PlannedRank& other) {
  std::vector<int> all(one.ranks.size() + other.ranks.size());
  std::ranges::merge(one.ranks, other.ranks, all.begin());
  one.ranks = std::move(all);
  one.rank = one.ranks.front();
  one.count += other.count;
}

/// Adds the next kind of rank of a list, or joins it with the last one if that holds the same.
void add(std::vector<PlannedRank>& kinds, PlannedRank next) {
  if (kinds.empty() || !alike(kinds.back(), next)) { return kinds.push_back(std::move(next)); }
  join(kinds.back(), next);
}

}  // namespace

std::vector<PlannedRank> plan(const PlanOptions& options, const std::function<void(World&)>& body) {
  std::vector<PlannedRank> all;
  bool whole = false;  // whether the last of `all` is a whole place along pipe
  for (const auto& stage : ranks_by_place(options)) {
    std::vector<PlannedRank> kinds;
    for (std::vector<int> ranks : stage) {
      if (ranks.front() == 0 && ranks.size() > 1) {
        add(kinds, planned(options, {0}, body));
        ranks.erase(ranks.begin());
      }
      add(kinds, planned(options, std::move(ranks), body));
    }
    const bool one = kinds.size() == 1;
    if (whole && one) {
      add(all, std::move(kinds.front()));
    } else {
      std::ranges::move(kinds, std::back_inserter(all));
    }
    whole = one;
  }
  return all;
}

}  // namespace tessera
