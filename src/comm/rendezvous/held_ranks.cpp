#include "comm/rendezvous/held_ranks.hpp"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

namespace tessera {

void HeldRanks::release(int rank, const Call& call) {
  const auto found = held_.find(rank);
  if (found != held_.end() && found->second == call) { held_.erase(found); }
}

std::vector<int> HeldRanks::free_of(const std::vector<int>& missing) const {
  std::vector<int> free;
  std::ranges::copy_if(missing, std::back_inserter(free),
                       [&](int rank) { return !held_.contains(rank); });
  return free;
}

std::optional<HeldRanks::Cause> HeldRanks::cause(std::vector<int> waited_for,
                                                 const Missing& missing) const {
  std::set<int> seen;
  for (;;) {
    const auto next = std::ranges::find_if(
        waited_for, [&](int rank) { return held_.contains(rank) && !seen.contains(rank); });
    if (next == waited_for.end()) { return {}; }
    seen.insert(*next);
    const Call call = held_.at(*next);
    waited_for = missing(call);
    std::vector<int> guilty = free_of(waited_for);
    if (!guilty.empty()) { return Cause{call, std::move(guilty)}; }
  }
}

}  // namespace tessera
