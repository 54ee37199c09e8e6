#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "comm/control/rank_names.hpp"
#include "comm/control/tcp/batch_dispute.hpp"
#include "comm/control/tcp/frame.hpp"
#include "comm/control/tcp/rank_groups.hpp"
#include "comm/control/tcp/text_meetings.hpp"

namespace tessera {

/// What a coordinator makes of what the ranks of a job say to it once all are here, and what it
/// tells them: frames in, frames out, and no connection.
class JobTalk {
 public:
  /// Tells `ranks`, in ascending order, the frame.
  using Tell = std::function<void(const std::vector<int>& ranks, const Frame& frame)>;
  JobTalk(int ranks, const RankNames& names, Tell tell);
  JobTalk(const JobTalk&) = delete;
  JobTalk& operator=(const JobTalk&) = delete;
  ~JobTalk() = default;

  /// `rank` has said `frame`. CommError or ContractError where no rank says such a thing; nothing
  /// that it says later counts then.
  void hear(int rank, Frame& frame);
  /// Whether ranks differ in their batches.
  [[nodiscard]] bool disputes() const noexcept { return dispute_.open(); }
  /// Asks ranks that differ what they have issued, and tells all what it was, as it is time at
  /// `now`: to be called after `hear`, and again and again while ranks differ.
  void settle(std::chrono::steady_clock::time_point now);
  /// All ranks of the job, in ascending order.
  [[nodiscard]] const std::vector<int>& everyone() const { return groups_.members(kAllRanks); }

 private:
  struct HeldCall {
    CallSeries series;
    std::uint64_t sequence;
    friend bool operator==(const HeldCall&, const HeldCall&) = default;
  };

  void on_group(int rank, const Frame& frame);
  void on_text(int rank, Frame& frame);
  void on_held(int rank, const Frame& frame);
  void answer(int rank, Frame& frame);
  [[nodiscard]] std::vector<int> missing(const CallSeries& call, std::uint64_t sequence) const;

  Tell tell_;
  RankGroups groups_;
  TextMeetings meetings_;
  BatchDispute dispute_;
  // Ranks that say that they are held up within the submission of a batch, until all of its ranks
  // have come: they are not to blame for calls that they do not come to meanwhile.
  std::map<int, HeldCall> held_;
};

}  // namespace tessera
