#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "comm/control/tcp/frame.hpp"

namespace tessera::comm {

/// A rank's batches on one channel: those not yet reported to the coordinator, and the codes of the
/// last ones, in case it asks.
class IssuedBatches {
 public:
  explicit IssuedBatches(const CallSeries& channel) noexcept : channel_{channel} {}

  /// Adds a batch that was issued, as its `code` (encode).
  void add(std::string code);
  /// Returns a frame `issued` with the batches added since the last one, or nothing if there are
  /// none.
  [[nodiscard]] std::optional<Frame> take_unsent();
  /// Returns the frame `code` that answers the frame `explain`.
  [[nodiscard]] Frame explain(const Frame& asked) const;

 private:
  CallSeries channel_;
  std::uint64_t count_ = 0;
  std::vector<std::uint64_t> unsent_;  // hashes
  std::deque<std::string> codes_;      // ends with the newest
};

}  // namespace tessera::comm
