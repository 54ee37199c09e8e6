#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "comm/control/tcp/frame.hpp"

namespace tessera {

/// A rank's batches of one channel: those that the coordinator has not been told of yet, and the
/// codes of the last ones, in case it asks.
class IssuedBatches {
 public:
  explicit IssuedBatches(const CallSeries& channel) noexcept : channel_{channel} {}

  /// Adds the batch that has been issued, by its `code` (encode).
  void add(std::string code);
  /// Returns a frame `issued` of the batches added since the last one, or nothing if there are
  /// none.
  [[nodiscard]] std::optional<Frame> take_unsent();
  /// Returns the frame `code` that answers the frame `explain`.
  [[nodiscard]] Frame explain(const Frame& asked) const;

 private:
  CallSeries channel_;
  std::uint64_t count_ = 0;
  std::vector<std::uint64_t> unsent_;  // hashes
  std::deque<std::string> codes_;      // up to the newest
};

}  // namespace tessera
