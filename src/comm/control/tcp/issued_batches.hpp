#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "comm/control/tcp/frame.hpp"

namespace tessera {

/// A rank's batches of one channel: what the coordinator is still to be told of, and the last of
/// them as they were, in case it asks.
class IssuedBatches {
 public:
  explicit IssuedBatches(const CallSeries& channel) noexcept : channel_{channel} {}

  /// `code` stands for the batch that has been issued (encode).
  void add(std::string code);
  /// A frame `issued` of those that have been added since the last one, if there are.
  [[nodiscard]] std::optional<Frame> take_unsent();
  /// A frame `code`, to the frame `explain`.
  [[nodiscard]] Frame explain(const Frame& asked) const;

 private:
  CallSeries channel_;
  std::uint64_t count_ = 0;
  std::vector<std::uint64_t> unsent_;  // hashes
  std::deque<std::string> codes_;      // up to the newest
};

}  // namespace tessera
