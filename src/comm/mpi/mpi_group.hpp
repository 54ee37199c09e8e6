#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/mpi/mpi_process.hpp"
#include "comm/mpi/mpi_requests.hpp"

namespace tessera {

/// Why a rank waits.
class MpiWait {
 public:
  virtual ~MpiWait() = default;
  /// Throws if nobody wants it any more.
  virtual void check() const {}
  /// Whether this rank waits at the end of its run: twice as long, so that those that wait for a
  /// rank elsewhere, and can say where, are the ones to report it.
  [[nodiscard]] virtual bool at_end() const noexcept { return false; }
  /// What to say when the deadline has passed and `peers` are still owed.
  [[nodiscard]] virtual std::string late(std::chrono::milliseconds waited,
                                         const std::vector<int>& peers) const = 0;
  /// What to say when `peer` has come to the end of its run without what it owes.
  [[nodiscard]] virtual std::string ended(int peer) const = 0;
};

/// Where the messages of one call go: over `comm` with `tag`, between `members`, this rank being
/// the `rank`-th of them.
struct MpiRoute {
  MPI_Comm comm;
  int tag;
  std::span<const int> members;
  int rank;
};

/// One rank's ties to the others in one run: how it waits for them, tells them of its failure and
/// hears of theirs. Shared by the rank's channels.
///
/// Threads: any.
class MpiGroup {
 public:
  MpiGroup(MpiProcess& process, std::chrono::milliseconds deadline);

  [[nodiscard]] int rank() const noexcept { return process_.rank(); }
  [[nodiscard]] int size() const noexcept { return process_.size(); }
  [[nodiscard]] MpiProcess& process() noexcept { return process_; }
  /// All ranks, in order.
  [[nodiscard]] const std::vector<int>& everyone() const noexcept { return everyone_; }
  /// From now on a rank may be held up in a group that others are not in.
  void note_division() noexcept { divided_ = true; }
  [[nodiscard]] bool divided() const noexcept { return divided_; }

  /// Blocks until `requests` are done, yielding at first and then sleeping: ranks may share cores.
  /// CommError, told to all ranks, if nothing moves until the deadline, on the one rank that
  /// reports it (report_late); Aborted if another rank has failed or reports; what `why` throws.
  void wait(MpiRequests& requests, const MpiWait& why);

  /// Every member's `message`, by their order.
  [[nodiscard]] std::vector<std::string> exchange(const MpiRoute& route, const std::string& message,
                                                  const MpiWait& why);

  /// Tells the others. The first failure stays. `status` is what the job is to end with.
  void abort(std::string_view reason, int status) noexcept;
  /// The job cannot go on: throws the group's failure. `reporter` tells the others: this rank, or
  /// one of those that find it out as well.
  [[noreturn]] void fail_and_throw(const std::string& text, int reporter);
  /// Throws the group's failure if it has one, or if word of one is waiting.
  void check_alive();
  /// After a failure of this rank: waits a moment for word of a lower rank that fails by itself as
  /// well, as with an error that all of them find. That one then reports.
  void give_way() noexcept;
  /// Whether the group's failure is another rank's to report.
  [[nodiscard]] bool another_reports() const noexcept;
  /// The exit status that came with another rank's failure; 0 if none did.
  [[nodiscard]] int told_status() const noexcept;

 private:
  enum class Source : std::uint8_t {
    this_rank,     ///< found it out
    caller,        ///< called abort
    another_rank,  ///< told, or finds it out as well, and reports it
  };
  struct Failure {
    std::string text;
    int status;
    Source source;
  };

  /// What a rank says that waits: for whom, and what it would report.
  struct LateReport {
    std::vector<int> missing;
    bool came_after;  ///< began to wait when another had said so
    std::string text;
  };

  /// How long one wait has seen nothing move. A process that did not look for half the deadline was
  /// stopped itself: that was no waiting, and it has yet to see what came meanwhile.
  class Stillness;
  /// Watches one wait for ranks that end their run instead of coming.
  class Deserters;

  /// Ranks that wait for one that has stopped, and those that wait for them, come to their
  /// deadlines within a moment of each other, in any order. Each that waits says so as soon as it
  /// or another comes there, and for whom. Who says so has not stopped: of those that wait for
  /// somebody who says nothing the lowest reports, and names nobody else. If all say so, those that
  /// began to wait after the first had said so are the late ones.
  [[noreturn]] void report_late(const MpiWait& why, const std::vector<int>& missing,
                                const Stillness& still);
  [[nodiscard]] bool begin_report(const LateReport& report);
  void listen() noexcept;
  /// Whose report it is, whom that names, and what that rank has told: the same on every rank that
  /// has heard the same.
  struct Verdict {
    int reporter;
    std::vector<int> guilty;
    std::string text;
  };
  [[nodiscard]] Verdict verdict() const;

  void hear();
  [[nodiscard]] bool hear_next();
  void take_in(int source, const std::string& message);
  void check_failure() const;
  [[nodiscard]] bool set_failure(std::string_view text, int status, Source source) noexcept;
  void tell() noexcept;
  void tell_late() noexcept;
  void send_to_all(MpiRequests& requests, const std::string& message);

  MpiProcess& process_;
  const std::chrono::milliseconds deadline_;
  const std::vector<int> everyone_;
  std::atomic<bool> divided_ = false;
  mutable std::mutex failure_lock_;
  std::optional<Failure> failure_;
  std::atomic<bool> failed_ = false;
  std::map<int, LateReport> late_;           // by rank, this one's among them
  std::atomic<bool> another_waits_ = false;  // and has said so
  std::string reason_;                       // under way to the others until `telling_` is done
  MpiRequests telling_;
  std::string waiting_;  // the same for `telling_late_`
  MpiRequests telling_late_;
};

}  // namespace tessera
