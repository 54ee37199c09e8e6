#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "comm/control/failure_texts.hpp"
#include "comm/control/rank_names.hpp"
#include "comm/control/tcp/call_ledger.hpp"
#include "comm/control/tcp/frame.hpp"
#include "comm/control/tcp/rank_groups.hpp"

namespace tessera {

/// Finds batches that differ, on the two channels and on those of groups, by what ranks tell the
/// coordinator. Where they differ it asks the ranks for their batches, and tells all ranks the
/// difference.
class BatchDispute {
 public:
  BatchDispute(const RankGroups& groups, const RankNames& names) : groups_{groups}, names_{names} {}

  /// Takes a frame `issued` or `code` of `rank`. Throws CommError if the frame breaks the protocol.
  void on_issued(int rank, const Frame& frame);
  void on_code(int rank, Frame& frame);
  /// Returns whether ranks differ.
  [[nodiscard]] bool open() const noexcept { return dispute_.has_value(); }

  using Say = std::function<void(int rank, const Frame& frame)>;
  /// Sends the messages that are due at `now`. The coordinator calls it repeatedly while the
  /// dispute is open.
  void settle(std::chrono::steady_clock::time_point now, const Say& say);

  /// Returns the ranks that have not issued batch `sequence` of `channel`, or nothing if that is no
  /// channel.
  [[nodiscard]] std::optional<std::vector<int>> missing(const CallSeries& channel,
                                                        std::uint64_t sequence) const;
  /// Returns whom members of `channel`, who have all issued a batch there, wait for in another
  /// group: ranks that are not members, and have issued fewer batches than those.
  [[nodiscard]] HeldUp behind(const CallSeries& channel) const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Dispute {
    CallSeries channel;
    std::uint64_t sequence;
    std::vector<std::optional<std::string>> codes;  // by the rank's place in its group
    std::optional<Clock::time_point> since = {};    // it was first settled
    Clock::time_point ask_at = {};
    bool told = false;
  };

  [[nodiscard]] std::string text() const;
  void tell(const Say& say, const Frame& frame) const;

  const RankGroups& groups_;
  const RankNames& names_;
  std::map<CallSeries, CallLedger> issued_;
  std::optional<Dispute> dispute_;
};

}  // namespace tessera
