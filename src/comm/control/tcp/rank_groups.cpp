#include "comm/control/tcp/rank_groups.hpp"

#include <algorithm>
#include <functional>
#include <numeric>

#include "tessera/base/error.hpp"

namespace tessera::comm {

RankGroups::RankGroups(int ranks) : ranks_{ranks} {
  std::vector<int> all(static_cast<std::size_t>(ranks));
  std::iota(all.begin(), all.end(), 0);
  groups_.emplace(kAllRanks, Group{{}, std::move(all)});
}

void RankGroups::add(std::uint64_t group, const std::string& name,
                     const std::vector<int>& members) {
  const bool ascending =
      std::ranges::adjacent_find(members, std::greater_equal<>{}) == members.end();
  if (members.empty() || !ascending || members.front() < 0 || members.back() >= ranks_) {
    throw CommError{"a rank announced a group with invalid members"};
  }
  const auto [known, is_new] = groups_.emplace(group, Group{name, members});
  if (!is_new && known->second != Group{name, members}) {
    throw CommError{"ranks announced different groups under one number"};
  }
}

const RankGroups::Group& RankGroups::find(std::uint64_t group) const {
  const auto found = groups_.find(group);
  if (found == groups_.end()) {
    throw CommError{"a rank made a call in a group that it is not in"};
  }
  return found->second;
}

const std::vector<int>& RankGroups::members(std::uint64_t group) const {
  return find(group).members;
}

std::size_t RankGroups::place(std::uint64_t group, int rank) const {
  const std::vector<int>& all = members(group);
  const auto found = std::ranges::lower_bound(all, rank);
  if (found == all.end() || *found != rank) {
    throw CommError{"a rank made a call in a group that it is not in"};
  }
  return static_cast<std::size_t>(found - all.begin());
}

std::string_view RankGroups::channel_name(const CallSeries& call) const {
  if (call.group != kAllRanks) { return find(call.group).name; }
  switch (call.kind) {
    case CallKind::reduce_text:
    case CallKind::reduce_batch:
      return "reduce";
    default:
      return "gather";
  }
}

}  // namespace tessera::comm
