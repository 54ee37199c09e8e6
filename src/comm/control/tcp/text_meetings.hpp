#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "comm/control/tcp/frame.hpp"
#include "comm/control/tcp/rank_groups.hpp"

namespace tessera {

/// The texts that ranks bring to calls of all of them, or of all of a group.
class TextMeetings {
 public:
  explicit TextMeetings(const RankGroups& groups) : groups_{groups} {}

  /// `rank` has come to a call with a frame `text`. Whether all have now. CommError if it has
  /// before, or the call is not its, or not the next of its series.
  [[nodiscard]] bool add(int rank, Frame& frame);
  /// What all are told then: a frame `texts`, and the call is over.
  [[nodiscard]] Frame take(const CallSeries& call, std::uint64_t sequence);
  /// Who has not come to a call; nobody, if it is over.
  [[nodiscard]] std::vector<int> missing(const CallSeries& call, std::uint64_t sequence) const;

 private:
  struct Meeting {
    std::vector<std::optional<std::string>> texts;  // by the rank's place in its group
    std::size_t present = 0;
  };

  const RankGroups& groups_;
  std::map<std::pair<CallSeries, std::uint64_t>, Meeting> meetings_;
  std::map<CallSeries, std::uint64_t> over_;  // calls of a series, which end in order; none: 0
};

}  // namespace tessera
