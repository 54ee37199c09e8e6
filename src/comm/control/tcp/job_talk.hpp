#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "comm/control/rank_names.hpp"
#include "comm/control/tcp/batch_dispute.hpp"
#include "comm/control/tcp/frame.hpp"
#include "comm/control/tcp/messages.hpp"
#include "comm/control/tcp/rank_groups.hpp"
#include "comm/control/tcp/text_meetings.hpp"
#include "comm/control/wait_clock.hpp"

namespace tessera::comm {

/// The coordinator's answers to the messages of a job's ranks once all are here: frames in, frames
/// out, without connections.
class JobTalk {
 public:
  /// Sends the frame to `ranks`, in ascending order.
  using Tell = std::function<void(const std::vector<int>& ranks, const Frame& frame)>;
  JobTalk(int ranks, const RankNames& names, Tell tell);
  JobTalk(const JobTalk&) = delete;
  JobTalk& operator=(const JobTalk&) = delete;
  ~JobTalk() = default;

  /// Takes `frame` from `rank`. Throws CommError or ContractError if a rank may not send it; later
  /// frames of that rank are ignored.
  void hear(int rank, Frame& frame);
  /// Whether ranks differ in their batches.
  [[nodiscard]] bool disputes() const noexcept { return dispute_.open(); }
  /// Asks ranks that differ for their batches, and tells all ranks the difference once it is due at
  /// `now`. Call it after `hear`, and repeatedly while ranks differ.
  void settle(WaitClock::Time now);
  /// All ranks of the job, in ascending order.
  [[nodiscard]] const std::vector<int>& everyone() const { return groups_.members(kAllRanks); }

 private:
  /// A rank, and the batch in which it is held up.
  struct HeldRank {
    int rank;
    CallSeries series;
    std::uint64_t sequence;
    friend auto operator<=>(const HeldRank&, const HeldRank&) = default;
  };

  void on_group(int rank, const Frame& frame);
  void on_text(int rank, Frame& frame);
  void on_held(int rank, const Frame& frame);
  void answer(int rank, Frame& frame);
  [[nodiscard]] WaitMessage wait_from(const Frame& frame) const;
  [[nodiscard]] std::vector<int> missing(const CallSeries& call, std::uint64_t sequence) const;
  [[nodiscard]] std::vector<int> missing(const CallSeries& call, std::uint64_t sequence,
                                         const WaitMessage& wait) const;

  Tell tell_;
  RankGroups groups_;
  TextMeetings meetings_;
  BatchDispute dispute_;
  // Ranks that report being held up in a batch: until those that they wait for have come, they are
  // not to blame for other calls that they miss.
  std::map<HeldRank, WaitMessage> held_;
};

}  // namespace tessera::comm
