#pragma once

#include <chrono>
#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "comm/control/failure_state.hpp"
#include "comm/control/job_end.hpp"
#include "tessera/base/error.hpp"

namespace tessera::comm {

/// One rank's part in the control plane of its job: how the ranks fail together. A communicator
/// moves data; it asks its rank's control plane whether the job is alive, and reports failures to
/// it. The rules are here and in FailureState and WaitGraph, once for every kind of job. A
/// transport carries the messages between ranks: shared memory (LocalRanks), or TCP connections
/// (TcpControlPlane, for every job of processes).
///
/// - The first failure stays, and reaches every rank. One rank reports it (CommError); the others
///   throw an echo (Aborted).
/// - A rank reports the problem that it finds. If several ranks find the same problem, the lowest
///   of them reports it.
/// - Of ranks that fail independently at the same time, the lowest reports.
/// - A call that is not complete by the deadline fails the job. Ranks that are waiting themselves
///   are not to blame for it (WaitGraph).
///
/// Threads: any.
class ControlPlane {
 public:
  ControlPlane(const ControlPlane&) = delete;
  ControlPlane& operator=(const ControlPlane&) = delete;
  virtual ~ControlPlane() = default;

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return size_; }
  /// The names of ranks in failure texts.
  [[nodiscard]] RankNames& names() const noexcept { return failure_->names(); }
  /// Returns how long a collective call may take.
  [[nodiscard]] std::chrono::milliseconds deadline() const noexcept { return deadline_; }
  /// Returns how long the end of a run is waited for. It is longer than `deadline`, so that ranks
  /// that wait within the run, and know where, report first.
  [[nodiscard]] std::chrono::milliseconds end_deadline() const noexcept { return 2 * deadline_; }

  /// Ends the job at the program's request, and tells the other ranks. An empty `reason` is
  /// replaced by words that say so. `status` is the exit status of the job. Does not wait; does
  /// nothing if the job has failed.
  void abort(std::string_view reason, int status = kCommStatus) noexcept;
  /// Ends the job for an error of this rank only, so that its peers do not wait for it.
  void abort_for(const std::exception& error) noexcept;
  /// Ends the job for a problem that this rank found. Rank `reporter` reports it and tells the
  /// others: this rank, or the lowest of those that find the same.
  void fail(const std::string& text, int reporter) noexcept;
  /// Calls `fail` and throws the job's failure.
  [[noreturn]] void fail_and_throw(const std::string& text, int reporter);

  /// Throws the job's failure if there is one.
  void check_alive();
  [[nodiscard]] bool failed() const noexcept { return failure_->failed(); }
  /// Called after a failure of this rank: waits a moment for a failure of a lower rank, as with an
  /// error that all ranks find. The lower rank then reports.
  void give_way() noexcept;
  [[nodiscard]] bool another_reports() const noexcept { return failure_->another_reports(rank_); }
  /// Returns the exit status that another rank's failure carried, or 0 without one.
  [[nodiscard]] int told_status() const noexcept { return failure_->status_from_others(rank_); }

 protected:
  /// Ranks that all find the same problem find it within this time of each other.
  static constexpr std::chrono::milliseconds kTurn{300};

  /// Ranks of one process share `failure`.
  ControlPlane(int rank, int size, std::chrono::milliseconds deadline,
               std::shared_ptr<FailureState> failure = std::make_shared<FailureState>());

  [[nodiscard]] FailureState& failure() const noexcept { return *failure_; }
  /// Does what `fail` does without telling the others, because every rank finds the same.
  void fail_untold(const std::string& text, int reporter) noexcept;

 private:
  /// Tells the other ranks. Exceptions are ignored: the end of this process tells them then.
  virtual void tell(const Failure& failure) = 0;
  /// Wakes the threads of this process that wait for other ranks.
  virtual void wake() noexcept {}
  void tell_failure() noexcept;

  const int rank_;
  const int size_;
  const std::chrono::milliseconds deadline_;
  const std::shared_ptr<FailureState> failure_;
};

/// Does `work` on behalf of a call of several ranks. An error of this rank only aborts the job: its
/// peers must not wait for it.
template <class Work>
void do_or_abort(ControlPlane& control, Work&& work) {
  try {
    std::forward<Work>(work)();
  } catch (const CommError&) {  // the job's failure
    throw;
  } catch (const std::exception& error) {
    control.abort_for(error);
    throw;
  }
}

}  // namespace tessera::comm
