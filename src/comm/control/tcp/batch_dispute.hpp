#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "comm/control/failure_texts.hpp"
#include "comm/control/tcp/call_ledger.hpp"
#include "comm/control/tcp/frame.hpp"
#include "comm/control/tcp/rank_groups.hpp"

namespace tessera {

/// What the ranks have issued on the two channels and on those of groups, as they tell the
/// coordinator, and what is done where they differ: they are asked what their batches were, and all
/// ranks are told how these differ.
class BatchDispute {
 public:
  explicit BatchDispute(const RankGroups& groups) : groups_{groups} {}

  /// A frame `issued` or `code` of `rank`. CommError where it says what cannot be.
  void on_issued(int rank, const Frame& frame);
  void on_code(int rank, Frame& frame);
  /// Whether ranks differ.
  [[nodiscard]] bool open() const noexcept { return dispute_.has_value(); }

  using Say = std::function<void(int rank, const Frame& frame)>;
  /// Says what is to be said at `now`; to be called again and again while it is open.
  void settle(std::chrono::steady_clock::time_point now, const Say& say);

  /// Those that have not issued batch `sequence` of `channel`; nothing if that is no channel.
  [[nodiscard]] std::optional<std::vector<int>> missing(const CallSeries& channel,
                                                        std::uint64_t sequence) const;
  /// Whom members of `channel`, who have all issued a batch there, wait for in another group: ranks
  /// that are not members, and have issued less than those.
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
  std::map<CallSeries, CallLedger> issued_;
  std::optional<Dispute> dispute_;
};

}  // namespace tessera
