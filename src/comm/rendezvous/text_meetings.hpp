#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "comm/rendezvous/frame.hpp"

namespace tessera {

/// The texts that ranks bring to calls of all of them.
class TextMeetings {
 public:
  explicit TextMeetings(int ranks) : ranks_{ranks} {}

  /// `rank` has come to a call with a frame `text`. Whether all have now. CommError if it has
  /// before.
  [[nodiscard]] bool add(int rank, Frame& frame);
  /// What all are told then: a frame `texts`, and the call is forgotten.
  [[nodiscard]] Frame take(CallKind call, std::uint64_t sequence);
  [[nodiscard]] std::vector<int> missing(CallKind call, std::uint64_t sequence) const;

 private:
  struct Meeting {
    std::vector<std::optional<std::string>> texts;
    int present = 0;
  };

  int ranks_;
  std::map<std::pair<CallKind, std::uint64_t>, Meeting> meetings_;
};

}  // namespace tessera
