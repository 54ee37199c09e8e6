#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "comm/control/tcp/frame.hpp"
#include "comm/control/tcp/rank_groups.hpp"

namespace tessera::comm {

/// The texts that ranks bring to calls of all ranks, or of all ranks of a group.
class TextMeetings {
 public:
  explicit TextMeetings(const RankGroups& groups) : groups_{groups} {}

  /// Takes the frame `text` of `rank` for a call. Returns whether all ranks have made the call.
  /// Throws CommError if the rank has already made it or is not part of it, or if the call is not
  /// the next of its series.
  [[nodiscard]] bool add(int rank, Frame& frame);
  /// Ends a call that all ranks have made, and returns the frame `texts` to send to all.
  [[nodiscard]] Frame take(const CallSeries& call, std::uint64_t sequence);
  /// Returns the ranks that have not made a call, or none if it is over.
  [[nodiscard]] std::vector<int> missing(const CallSeries& call, std::uint64_t sequence) const;

  /// An exchange of the program that not all ranks have made yet.
  struct OpenExchange {
    CallSeries call;
    std::uint64_t sequence;
    std::vector<int> present;  ///< the ranks that have made it and wait
  };
  [[nodiscard]] std::vector<OpenExchange> open_exchanges() const;

 private:
  struct Meeting {
    std::vector<std::optional<std::string>> texts;  // by index in its group
    std::size_t present = 0;
  };

  const RankGroups& groups_;
  std::map<std::pair<CallSeries, std::uint64_t>, Meeting> meetings_;
  std::map<CallSeries, std::uint64_t>
      over_;  // finished calls of a series, which end in order; no entry: 0
};

}  // namespace tessera::comm
