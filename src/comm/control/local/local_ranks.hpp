#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "comm/control/control_plane.hpp"
#include "comm/local/traffic_counts.hpp"
#include "tessera/comm/batch.hpp"
#include "tessera/comm/communicator.hpp"
#include "tessera/device/device.hpp"

namespace tessera::comm {

/// Whether the group counts the bytes between its ranks.
enum class CountTraffic : std::uint8_t { no, yes };

/// What ranks meet for. Batches and texts of a channel are numbered separately.
enum class MeetingKind : std::uint8_t { batch, exchange };

/// The progress of a rank's stream in a batch moved by device streams. The rank records each event,
/// all ranks meet on the host, and then the peers' streams wait for the event.
struct DeviceMarks {
  OwnedEvent ready;   ///< its buffers may be read and written
  OwnedEvent first;   ///< the first half is done
  OwnedEvent second;  ///< and the second
};

/// The state that a communicator's ranks share: all ranks of the job, or those of a split. It lives
/// as long as any of its ranks' communicators, or any batch that one has submitted.
class LocalChannel {
 public:
  LocalChannel(std::size_t number, std::string name, std::vector<int> members)
      : number_{number},
        name_{std::move(name)},
        members_{std::move(members)},
        withdrawn_(members_.size(), 0) {}

  [[nodiscard]] std::size_t number() const noexcept { return number_; }
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] int size() const noexcept { return static_cast<int>(members_.size()); }
  /// Returns the job ranks of the channel in ascending order, indexed by the channel's rank.
  [[nodiscard]] const std::vector<int>& members() const noexcept { return members_; }
  [[nodiscard]] int job_rank(int rank) const noexcept {
    return members_[static_cast<std::size_t>(rank)];
  }
  [[nodiscard]] bool has(int job_rank) const noexcept;

 private:
  friend class LocalRanks;
  std::size_t number_;
  std::string name_;
  std::vector<int> members_;
  std::vector<std::uint64_t>
      withdrawn_;  // by rank: the end of its withdrawn calls; protected by the group's lock
};

/// What one rank brings to a meeting. Memory that it points to stays alive until the rank has left.
struct Visit {
  std::shared_ptr<LocalChannel> channel = nullptr;
  MeetingKind kind = MeetingKind::batch;
  std::uint64_t sequence = 0;
  int rank = 0;  ///< the rank within the channel
  const Batch* batch = nullptr;
  const std::string* text = nullptr;
  const DeviceMarks* marks = nullptr;  ///< null unless devices move the data
};

/// One collective call of all ranks of a channel.
///
///   gathering --all are here and agree--> open --sync, sync ...--> forgotten
///
/// Once open it runs to its end, whatever happens elsewhere: all ranks are in it on threads that
/// only move memory. A rank leaves with its last `sync`, when no peer reads its buffers any more.
/// This, and not the host's state, makes it safe to free them.
class Meeting {
 public:
  explicit Meeting(int ranks) : visits_(static_cast<std::size_t>(ranks)) {}
  /// Returns the ranks' visits, by rank. They do not change while the meeting is open.
  [[nodiscard]] const std::vector<Visit>& visits() const noexcept { return visits_; }

 private:
  friend class LocalRanks;
  std::vector<Visit> visits_;
  int present_ = 0;
  bool open_ = false;
  int in_sync_ = 0;
  std::uint64_t syncs_ = 0;
  std::condition_variable changed_;
};

class LocalRanks;

/// The control plane of one rank that is a thread. All ranks of the process share one failure, so
/// no messages are needed.
class LocalControlPlane final : public ControlPlane {
 public:
  LocalControlPlane(LocalRanks& ranks, int rank, int size, std::chrono::milliseconds deadline,
                    std::shared_ptr<FailureState> failure)
      : ControlPlane{rank, size, deadline, std::move(failure)}, ranks_{ranks} {}

 private:
  void tell(const Failure& /*failure*/) override {}
  void wake() noexcept override;

  LocalRanks& ranks_;
};

/// What the ranks of one process share: their control planes, and the place where they meet. One
/// lock protects the meetings of all channels; it is never held while data moves.
///
/// Threads: any.
class LocalRanks {
 public:
  /// Makes `channels` for all ranks, numbered from 0.
  LocalRanks(int ranks, const std::vector<std::string>& channels,
             std::chrono::milliseconds deadline, CountTraffic count = CountTraffic::no);

  [[nodiscard]] int size() const noexcept { return static_cast<int>(planes_.size()); }
  /// Returns the control plane of a rank of the job.
  [[nodiscard]] ControlPlane& plane(int job_rank) noexcept {
    return planes_[static_cast<std::size_t>(job_rank)];
  }
  [[nodiscard]] const std::shared_ptr<LocalChannel>& channel(std::size_t number) const {
    return whole_[number];
  }
  /// Returns the counts of traffic, or null if it is not counted.
  [[nodiscard]] TrafficCounts* traffic() noexcept { return traffic_ ? &*traffic_ : nullptr; }
  /// Returns the channel of a group that the `nth` split of `whole` makes. The first rank of the
  /// group that asks makes it; the ranks own it once the last has asked.
  [[nodiscard]] std::shared_ptr<LocalChannel> split(const LocalChannel& whole, std::uint64_t nth,
                                                    const RankGroup& group);

  /// Blocks until all ranks of the channel have made the same call. Throws CommError, on all ranks
  /// alike, if the job has failed, if the calls differ, or if a rank misses the deadline; on this
  /// rank only if it withdraws.
  [[nodiscard]] std::shared_ptr<Meeting> join(const Visit& visit);
  /// Blocks until all of its ranks reach this point of an open meeting.
  void sync(Meeting& meeting) noexcept;

  /// Makes every rank that is in `join` check whether the job has failed.
  void wake() noexcept;
  /// Removes `rank` from the meetings before `end` on `channel` that are not open yet.
  void withdraw(LocalChannel& channel, int rank, std::uint64_t end) noexcept;
  /// Notes that the program of `job_rank` has ended well, with all its calls. A call that needs it,
  /// made earlier or later, fails the job at once.
  void leave(int job_rank) noexcept;

 private:
  using Key = std::tuple<std::size_t, MeetingKind, std::uint64_t>;
  using SplitKey = std::tuple<std::size_t, std::uint64_t,
                              int>;  // the split channel, the number of the split, and the group
  struct Split {
    std::shared_ptr<LocalChannel> channel;
    std::size_t asked;  // the number of the group's ranks that have asked
  };

  class Presence;

  [[nodiscard]] static Key key_of(const Visit& visit) noexcept;
  [[nodiscard]] std::shared_ptr<LocalChannel> make_channel_locked(std::string name,
                                                                  std::vector<int> members);
  [[nodiscard]] static bool withdrawn(const Visit& visit) noexcept;
  [[nodiscard]] std::shared_ptr<Meeting> find_or_make_locked(const Visit& visit);
  [[nodiscard]] std::optional<int> left_locked(const LocalChannel& channel) const noexcept;
  void open_locked(Meeting& meeting, const Visit& visit);
  void wake_locked() noexcept;
  void fail_locked(std::string_view text, int reporter) noexcept;
  [[nodiscard]] static std::string called(const Visit& visit);
  [[nodiscard]] std::string late_locked(const Meeting& meeting, const Visit& visit) const;
  void fail_without_locked(int left, const Visit& waiting) noexcept;

  const std::shared_ptr<FailureState> failure_ = std::make_shared<FailureState>();
  const std::chrono::milliseconds deadline_;
  std::deque<LocalControlPlane> planes_;  // by rank of the job
  std::optional<TrafficCounts> traffic_;

  mutable std::mutex mutex_;
  std::map<Key, std::shared_ptr<Meeting>> gathering_;
  std::vector<std::shared_ptr<LocalChannel>> whole_;  // by number
  std::size_t next_number_ = 0;
  std::map<SplitKey, Split> splits_;  // channels that a rank has yet to ask for
  std::vector<int> left_;             // job ranks that have ended, in order of time
};

}  // namespace tessera::comm
