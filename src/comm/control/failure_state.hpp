#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "comm/control/rank_names.hpp"

namespace tessera::comm {

/// How a rank came to fail the job: it found a problem, or its program asked for it.
enum class FailureKind : std::uint8_t { found, requested };

/// Why a job cannot go on.
struct Failure {
  std::string text;
  int status = 0;    ///< The exit status that the job ends with.
  int reporter = 0;  ///< The rank that reports it. What other ranks throw is an echo.
  FailureKind kind = FailureKind::found;
};

/// The failure of a job, as the ranks of one process know it.
///
///   alive --set, hear--> failed --hear of a lower rank--> failed, with that rank's reason
///
/// The first failure stays. Ranks that fail on their own at the same time hear of each other; the
/// lowest of them reports.
///
/// Threads: any.
class FailureState {
 public:
  /// Fails the job. Returns false, without effect, if it has already failed. The text is cut off
  /// after 3,000 bytes, and is lost if there is no memory for it.
  bool set(std::string_view text, int status, int reporter,
           FailureKind kind = FailureKind::found) noexcept;
  /// Fails the job with a text made beforehand. Allocates nothing.
  bool set_prepared(std::string&& text, int status, int reporter) noexcept;
  /// Notes the message of rank `from` that it has failed. That rank reports, unless a lower one
  /// does.
  void hear(int from, std::string_view text, int status) noexcept;

  [[nodiscard]] bool failed() const noexcept { return failed_; }
  /// Throws what rank `own` throws once the job has failed: CommError if it is to report, Aborted
  /// if it only repeats another rank's failure or its own program's request. Returns while the job
  /// is alive.
  void check(int own) const;
  /// Returns whether a rank other than `own` reports the failure.
  [[nodiscard]] bool another_reports(int own) const noexcept;
  /// Returns the failure. Requires that the job has failed.
  [[nodiscard]] Failure failure() const;
  /// Returns the exit status that the failure of a rank other than `own` carried, or 0 without one.
  [[nodiscard]] int status_from_others(int own) const noexcept;
  /// The names of ranks in every failure text.
  [[nodiscard]] RankNames& names() noexcept { return names_; }

 private:
  RankNames names_;
  mutable std::mutex mutex_;
  std::optional<Failure> failure_;
  std::atomic<bool> failed_ = false;
};

}  // namespace tessera::comm
