#include "tessera/profile/plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <string>
#include <utility>

#include "tessera/base/error.hpp"

namespace tessera {
namespace {

bool alike(const PlannedRank& one, const PlannedRank& other) {
  const MemoryReport& a = one.memory;
  const MemoryReport& b = other.memory;
  return a.live == b.live && a.at_peak == b.at_peak && a.most_in_use == b.most_in_use &&
         a.by_phase == b.by_phase && one.host_peak_bytes == other.host_peak_bytes &&
         one.notes == other.notes;
}

/// The mesh of the job; one of `shard` alone if there is none.
MeshShape checked_mesh(const PlanOptions& options) {
  if (options.ranks < 1) {
    throw ConfigError{
        fmt::format("`ranks` is {}: a plan needs the number of ranks, 1 or more", options.ranks)};
  }
  return MeshShape{options.mesh.empty() ? std::vector<MeshDim>{{"shard", options.ranks}}
                                        : options.mesh};
}

/// The ranks at each place along `pipe`, and there at each along `tensor`, in ascending order.
std::vector<std::vector<std::vector<int>>> ranks_by_place(const PlanOptions& options) {
  const MeshShape mesh = checked_mesh(options);
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
        planned.notes = world.memory().notes();
        planned.host_peak_bytes = world.host_memory().report().peak_bytes;
      },
      options.world);
  return planned;
}

/// The plans of the places along `tensor` at one place along `pipe`, where places of one kind hold
/// the same.
class StagePlan {
 public:
  StagePlan(const PlanOptions& options, const std::function<void(World&)>& body)
      : options_{options}, body_{body} {}

  [[nodiscard]] PlannedRank plan(int tensor, std::vector<int> ranks) {
    const std::string key =
        options_.tensor_key ? options_.tensor_key(tensor) : std::to_string(tensor);
    const auto known = plans_.find(key);
    if (known == plans_.end()) {
      return plans_.emplace(key, planned(options_, std::move(ranks), body_)).first->second;
    }
    PlannedRank same = known->second;
    same.rank = ranks.front();
    same.count = static_cast<int>(ranks.size());
    same.ranks = std::move(ranks);
    return same;
  }

 private:
  const PlanOptions& options_;
  const std::function<void(World&)>& body_;
  std::map<std::string, PlannedRank> plans_;  // by key
};

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
    StagePlan plans{options, body};
    for (int tensor = 0; tensor < std::ssize(stage); ++tensor) {
      std::vector<int> ranks = stage[static_cast<std::size_t>(tensor)];
      if (ranks.front() == 0) {  // it may hold more than the others
        add(kinds, planned(options, {0}, body));
        ranks.erase(ranks.begin());
        if (ranks.empty()) { continue; }
      }
      add(kinds, plans.plan(tensor, std::move(ranks)));
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
