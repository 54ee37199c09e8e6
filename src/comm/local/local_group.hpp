#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/comm/batch.hpp"
#include "tessera/device/device.hpp"

namespace tessera {

/// Where ranks meet: batches and texts of a channel are numbered apart.
enum class Purpose : std::uint8_t { batch, exchange };

/// Where a rank's stream has come in a batch that streams of a device move: recorded by the rank,
/// waited for by its peers' streams. On the host each is recorded, then all ranks meet, then it is
/// waited for.
struct DeviceMarks {
  OwnedEvent ready;   ///< its buffers may be read and written
  OwnedEvent first;   ///< the first half is done
  OwnedEvent second;  ///< and the second
};

/// What one rank brings to a meeting. What it points to stays alive until the rank has left.
struct Visit {
  int channel = 0;
  Purpose purpose = Purpose::batch;
  std::uint64_t sequence = 0;
  int rank = 0;
  const Batch* batch = nullptr;
  const std::string* text = nullptr;
  const DeviceMarks* marks = nullptr;  ///< where devices move the data
};

/// One collective call of all ranks.
///
///   gathering --all are here and agree--> open --sync, sync ...--> forgotten
///
/// Once open it runs to its end whatever happens elsewhere: all ranks are in it on threads that
/// only move memory. A rank leaves by its last `sync`, when no peer reads its buffers any more.
/// That, and not the host's state, is what makes it safe to free them.
class Meeting {
 public:
  explicit Meeting(int ranks) : visits_(static_cast<std::size_t>(ranks)) {}
  /// By rank. Fixed while the meeting is open.
  [[nodiscard]] const std::vector<Visit>& visits() const noexcept { return visits_; }

 private:
  friend class LocalGroup;
  std::vector<Visit> visits_;
  int present_ = 0;
  bool open_ = false;
  int in_sync_ = 0;
  std::uint64_t syncs_ = 0;
  std::condition_variable changed_;
};

/// What the ranks of one process share: the place where they meet, and how they fail together.
/// Meetings of all channels are under one lock, which is never held while data moves.
///
/// Threads: any.
class LocalGroup {
 public:
  LocalGroup(int ranks, std::vector<std::string> channels, std::chrono::milliseconds deadline);

  [[nodiscard]] int ranks() const noexcept { return ranks_; }

  /// Blocks until all ranks have come with the same call. CommError, on all ranks alike, if the
  /// group has failed, if the calls differ, or if a rank does not come by the deadline; on this
  /// rank alone if it withdraws.
  [[nodiscard]] std::shared_ptr<Meeting> join(const Visit& visit);
  /// Blocks until all ranks are at this point of an open meeting.
  void sync(Meeting& meeting) noexcept;

  /// Wakes everyone who is in `join`, with Aborted. The first failure stays.
  void abort(std::string_view reason) noexcept;
  /// `rank` does not come to the meetings before `end` on `channel` that are not open yet.
  void withdraw(int channel, int rank, std::uint64_t end) noexcept;
  /// `rank` has ended its program well and all its calls: nobody waits for it any more. A call that
  /// needs it, made already or later, fails the group at once.
  void leave(int rank) noexcept;
  /// Throws the group's failure if it has one.
  void check_alive() const;

 private:
  using Key = std::pair<int, std::uint64_t>;
  struct Failure {
    std::string text;
    bool echo;  ///< somebody called `abort`: not what the group found out by itself
  };

  class Presence;

  [[nodiscard]] Key key_of(const Visit& visit) const noexcept;
  [[nodiscard]] bool withdrawn(const Visit& visit) const noexcept;
  void check_alive_locked() const;
  [[nodiscard]] std::shared_ptr<Meeting> find_or_make_locked(const Key& key);
  void open_locked(Meeting& meeting, const Visit& visit);
  void fail_locked(std::string text, bool echo) noexcept;
  [[nodiscard]] std::string called(const Visit& visit) const;
  [[nodiscard]] std::string late(const Meeting& meeting, const Visit& visit) const;
  void fail_without_locked(int left, const Visit& waiting) noexcept;

  const int ranks_;
  const std::vector<std::string> channels_;
  const std::chrono::milliseconds deadline_;

  mutable std::mutex mutex_;
  std::map<Key, std::shared_ptr<Meeting>> gathering_;
  std::vector<std::uint64_t> withdrawn_;  // [channel * ranks + rank]: the end of what it took back
  std::optional<int> left_;               // the first rank that has ended
  std::optional<Failure> failure_;
};

}  // namespace tessera
