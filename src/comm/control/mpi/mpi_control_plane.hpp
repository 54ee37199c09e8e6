#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/control/control_plane.hpp"
#include "comm/mpi/mpi_process.hpp"
#include "comm/mpi/mpi_requests.hpp"

namespace tessera {

/// The reason why a rank waits.
class MpiWait {
 public:
  virtual ~MpiWait() = default;
  /// Throws if the result is not wanted any more.
  virtual void check() const {}
  /// Returns whether this rank waits at the end of its run (ControlPlane::end_deadline).
  [[nodiscard]] virtual bool at_end() const noexcept { return false; }
  /// Returns what to say when the deadline has passed and `peers` still owe something.
  [[nodiscard]] virtual std::string late(std::chrono::milliseconds waited,
                                         const std::vector<int>& peers) const = 0;
  /// Returns what to say when `peer` has come to the end of its run without what it owes.
  [[nodiscard]] virtual std::string ended(int peer) const = 0;
};

/// The route of one call's messages: over `comm` with `tag`, between `members`, of which this rank
/// is the `rank`-th.
struct MpiRoute {
  MPI_Comm comm;
  int tag;
  std::span<const int> members;
  int rank;
};

/// The control plane of one rank that is a process of MPI: it tells the others by messages, and
/// hears of them whenever it waits, as no other thread calls MPI for it. The rank's channels share
/// it.
///
/// Threads: any.
class MpiControlPlane final : public ControlPlane {
 public:
  MpiControlPlane(MpiProcess& process, std::chrono::milliseconds deadline);

  [[nodiscard]] MpiProcess& process() noexcept { return process_; }
  /// Returns all ranks, in order.
  [[nodiscard]] const std::vector<int>& everyone() const noexcept { return everyone_; }
  /// Notes that from now on a rank may be held up in a group that others are not in.
  void note_split() noexcept { has_groups_ = true; }
  [[nodiscard]] bool has_groups() const noexcept { return has_groups_; }

  /// Blocks until `requests` are done, yielding at first and then sleeping: ranks may share cores.
  /// Throws CommError, told to all ranks, if nothing moves until the deadline, on the one rank that
  /// reports it (report_late); Aborted if another rank has failed or reports; and what `why`
  /// throws.
  void wait(MpiRequests& requests, const MpiWait& why);

  /// Returns every member's `message`, in their order.
  [[nodiscard]] std::vector<std::string> exchange(const MpiRoute& route, const std::string& message,
                                                  const MpiWait& why);

 private:
  /// A waiting rank's word: the ranks that it waits for, and what it would report.
  struct LateReport {
    std::vector<int> missing;
    bool after_deadline;  ///< Whether it began to wait when another rank had said so.
    std::string text;
  };

  /// The time for which one wait has seen nothing move. A process that did not look for half the
  /// deadline was stopped itself: that was no waiting, and it has yet to see what came meanwhile.
  class Stillness;
  /// Watches one wait for ranks that end their run instead of coming.
  class Deserters;

  /// Ranks that wait for one that has stopped, and those that wait for them, come to their
  /// deadlines within a moment of each other, in any order. Each that waits says so as soon as it
  /// or another comes there, and for whom. Who says so has not stopped: of those that wait for
  /// somebody who says nothing the lowest reports, and names nobody else. If all say so, those that
  /// began to wait after the first had said so are the late ones (first_blame).
  [[noreturn]] void report_late(const MpiWait& why, const std::vector<int>& missing,
                                const Stillness& still);
  [[nodiscard]] bool begin_report(const LateReport& report);
  void hear_others_that_wait() noexcept;
  /// The rank that reports, the ranks that it names, and what it has told: the same on every rank
  /// that has heard the same.
  struct Verdict {
    int reporter;
    std::vector<int> guilty;
    std::string text;
  };
  [[nodiscard]] Verdict verdict() const;

  void tell(const Failure& failure) override;
  void listen() override;
  void hear();
  [[nodiscard]] bool hear_next();
  void take_in(int source, const std::string& message);
  void tell_late() noexcept;
  void send_to_all(MpiRequests& requests, const std::string& message);

  MpiProcess& process_;
  const std::vector<int> everyone_;
  std::atomic<bool> has_groups_ = false;
  mutable std::mutex late_lock_;
  std::map<int, LateReport> late_;           // by rank, this one's among them
  std::atomic<bool> another_waits_ = false;  // and has said so
  std::string reason_;                       // under way to the others until `telling_` is done
  MpiRequests telling_;
  std::string waiting_;  // the same for `telling_late_`
  MpiRequests telling_late_;
};

}  // namespace tessera
