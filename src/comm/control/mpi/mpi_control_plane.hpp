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
  /// Throws if the result is no longer needed.
  virtual void check() const {}
  /// Returns whether this rank waits at the end of its run (ControlPlane::end_deadline).
  [[nodiscard]] virtual bool at_end() const noexcept { return false; }
  /// Returns the error text for a passed deadline, while `peers` still owe messages.
  [[nodiscard]] virtual std::string late(std::chrono::milliseconds waited,
                                         const std::vector<int>& peers) const = 0;
  /// Returns the error text for a `peer` that ended its run without sending what it owes.
  [[nodiscard]] virtual std::string ended(int peer) const = 0;
};

/// The route of one call's messages: over `comm` with `tag`, between `members`; this rank is the
/// `rank`-th of them.
struct MpiRoute {
  MPI_Comm comm;
  int tag;
  std::span<const int> members;
  int rank;
};

/// The control plane of one rank that is an MPI process. It sends messages to the others, and
/// receives theirs whenever it waits, as no other thread calls MPI for it. The rank's channels
/// share it.
///
/// Threads: any.
class MpiControlPlane final : public ControlPlane {
 public:
  MpiControlPlane(MpiProcess& process, std::chrono::milliseconds deadline);

  [[nodiscard]] MpiProcess& process() noexcept { return process_; }
  /// Returns all ranks, in order.
  [[nodiscard]] const std::vector<int>& everyone() const noexcept { return everyone_; }
  /// Notes that from now on a rank may be held up in a group without the others.
  void note_split() noexcept { has_groups_ = true; }
  [[nodiscard]] bool has_groups() const noexcept { return has_groups_; }

  /// Blocks until `requests` are done, yielding at first and then sleeping: ranks may share cores.
  /// If nothing moves until the deadline, throws CommError, sent to all ranks, on the one rank that
  /// reports it (report_late). Throws Aborted if another rank has failed or reports, and any
  /// exception of `why`.
  void wait(MpiRequests& requests, const MpiWait& why);

  /// Returns every member's `message`, in their order.
  [[nodiscard]] std::vector<std::string> exchange(const MpiRoute& route, const std::string& message,
                                                  const MpiWait& why);

 private:
  /// A waiting rank's report: the ranks that it waits for, and the text that it would report.
  struct LateReport {
    std::vector<int> missing;
    bool after_deadline;  ///< Whether it began to wait after another rank had reported late.
    std::string text;
  };

  /// The time during which one wait has seen nothing move. A process that has not looked for half
  /// the deadline was stopped itself: that does not count as waiting, and it first has to see what
  /// arrived in that time.
  class Stillness;
  /// Watches, during one wait, for ranks that end their run without making the call.
  class Deserters;

  /// Ranks that wait for one that has stopped, and ranks that wait for them, reach their deadlines
  /// at almost the same time, in any order. Each waiting rank reports late as soon as it or another
  /// reaches its deadline, and names the ranks that it waits for. A rank that reports late has not
  /// stopped. So, of the ranks that wait for a rank without a report, the lowest reports the
  /// failure and names only ranks without one. If all report late, those that began to wait after
  /// the first report are the late ones (first_blame).
  [[noreturn]] void report_late(const MpiWait& why, const std::vector<int>& missing,
                                Stillness& still);
  [[nodiscard]] bool begin_report(const LateReport& report);
  void hear_others_that_wait(Stillness& still) noexcept;
  /// The rank that reports, the ranks that it names, and its text: equal on every rank that has
  /// heard the same.
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
  std::map<int, LateReport> late_;           // by rank, including this one
  std::atomic<bool> another_waits_ = false;  // and has reported it
  std::string reason_;                       // in transit to the others until `telling_` is done
  MpiRequests telling_;
  std::string waiting_;  // the same for `telling_late_`
  MpiRequests telling_late_;
};

}  // namespace tessera
