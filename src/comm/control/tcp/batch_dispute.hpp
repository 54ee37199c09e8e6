#pragma once

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
#include "comm/control/wait_clock.hpp"

namespace tessera::comm {

/// Finds batches that differ, on the two channels and on those of groups, from what ranks report to
/// the coordinator. Where batches differ it asks the ranks for them, and tells all ranks the
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
  void settle(WaitClock::Time now, const Say& say);

  /// Returns the ranks that have not issued batch `sequence` of `channel`, or nothing if that is no
  /// channel.
  [[nodiscard]] std::optional<std::vector<int>> missing(const CallSeries& channel,
                                                        std::uint64_t sequence) const;
  /// Returns the ranks outside `channel` that hold up its members, who have all issued a batch
  /// there: ranks of another group that have issued fewer of its batches than those members.
  [[nodiscard]] HeldUp behind(const CallSeries& channel) const;

 private:
  struct Dispute {
    CallSeries channel;
    std::uint64_t sequence;
    std::vector<std::optional<std::string>> codes;  // by index in its group
    std::optional<WaitClock::Time> since = {};      // when it was first settled
    WaitClock::Time ask_at = {};
    bool told = false;
  };

  [[nodiscard]] std::string text() const;
  void tell(const Say& say, const Frame& frame) const;

  const RankGroups& groups_;
  const RankNames& names_;
  std::map<CallSeries, CallLedger> issued_;
  std::optional<Dispute> dispute_;
};

}  // namespace tessera::comm
