#pragma once

#include <cstddef>
#include <exception>
#include <mutex>
#include <string>
#include <vector>

#include "comm/control/rank_names.hpp"

namespace tessera::comm {

/// Keeps how the ranks of a job failed and finds the failure to report.
///
/// Threads: any rank adds its own; the rest when all ranks have ended. All errors are kept until
///          then, so that none is destroyed on one thread while another reads it.
class RankErrors {
 public:
  explicit RankErrors(int ranks);

  /// Notes that rank `rank` threw `error`. The first error of a rank counts.
  void add(int rank, std::exception_ptr error) noexcept;
  /// Throws the cause, its text preceded by "rank r: ": the first error in time that is not an echo
  /// of another rank's failure. Ranks that fail with the same text count as the lowest of them. Up
  /// to three other causes follow, one per line. Returns if no rank has thrown.
  void rethrow_cause(const RankNames& names) const;

 private:
  struct Thrown {
    int rank = 0;
    std::exception_ptr error;
  };
  struct Cause {
    std::string text;
    Thrown lowest;
  };
  [[nodiscard]] std::vector<Cause> causes() const;

  std::mutex mutex_;
  std::vector<Thrown> thrown_;  // in order of time
};

/// Returns whether `error` only repeats another rank's failure.
[[nodiscard]] bool is_echo(const std::exception_ptr& error) noexcept;

/// Throws `error` again, its text preceded by `rank`, a name from RankNames, and followed by
/// `more`. Keeps the type of the library's errors; std::bad_alloc becomes OutOfMemory, any other
/// type Error.
[[noreturn]] void rethrow_with_rank(const std::exception_ptr& error, const std::string& rank,
                                    const std::string& more = {});

class ControlPlane;

/// Aborts the job for `error`, which ends this rank: with "rank r: " and its text, and the exit
/// status for it.
void abort_with(ControlPlane& control, const std::exception_ptr& error) noexcept;

/// Returns the text of `error`. It never throws.
[[nodiscard]] std::string text_of(const std::exception_ptr& error);

}  // namespace tessera::comm
