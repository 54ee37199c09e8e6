#include "comm/control/rank_names.hpp"

#include <fmt/format.h>

#include <utility>

namespace tessera::comm {

void RankNames::arrange(std::function<std::string(int)> place_of) {
  const std::scoped_lock lock{mutex_};
  place_of_ = std::move(place_of);
}

std::string RankNames::of(int rank) const {
  return "rank " + numbered(rank);
}

std::string RankNames::of(const std::vector<int>& ranks) const {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    text += (i == 0 ? "" : ", ") + numbered(ranks[i]);
  }
  return text;
}

std::string RankNames::numbered(int rank) const {
  const std::scoped_lock lock{mutex_};
  return place_of_ ? fmt::format("{} ({})", rank, place_of_(rank)) : std::to_string(rank);
}

}  // namespace tessera::comm
