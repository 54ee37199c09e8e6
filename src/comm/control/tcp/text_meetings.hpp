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

  /// Takes the frame `text` with which `rank` comes to a call. Returns whether all ranks have come
  /// now. Throws CommError if the rank has come before, if it has no part in the call, or if the
  /// call is not the next of its series.
  [[nodiscard]] bool add(int rank, Frame& frame);
  /// Ends a call to which all have come, and returns the frame `texts` that all are sent.
  [[nodiscard]] Frame take(const CallSeries& call, std::uint64_t sequence);
  /// Returns the ranks that have not come to a call, or none if it is over.
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
