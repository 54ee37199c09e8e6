#pragma once

#include <cstddef>
#include <exception>
#include <mutex>
#include <string>
#include <vector>

#include "comm/control/rank_names.hpp"

namespace tessera {

/// Keeps how the ranks of a job failed and finds the one to report.
///
/// Threads: any rank adds its own; the rest when all ranks have ended. All errors are kept until
///          then, so that none is destroyed on a thread while another looks at it.
class RankErrors {
 public:
  explicit RankErrors(int ranks);

  /// Notes that rank `rank` has thrown `error`. The first error of a rank counts.
  void add(int rank, std::exception_ptr error) noexcept;
  /// Throws the cause, its text preceded by "rank r: ": the first in time that is not an echo of
  /// another rank's failure. Ranks that fail with one text count as the lowest of them. Other
  /// causes follow in a line each, three at most. Returns if no rank has thrown.
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
  std::vector<Thrown> thrown_;  // in time
};

/// Returns whether `error` only repeats another rank's failure.
[[nodiscard]] bool is_echo(const std::exception_ptr& error) noexcept;

/// Throws `error` again, its text preceded by `rank`, as RankNames calls it, and followed by
/// `more`: as the same type where it is one of the library's, OutOfMemory for std::bad_alloc, else
/// Error.
[[noreturn]] void rethrow_with_rank(const std::exception_ptr& error, const std::string& rank,
                                    const std::string& more = {});

class ControlPlane;

/// Aborts the job for `error`, with which this rank ends: "rank r: " and its text, and the exit
/// status that it deserves.
void abort_with(ControlPlane& control, const std::exception_ptr& error) noexcept;

/// Returns what `error` says. It never throws.
[[nodiscard]] std::string text_of(const std::exception_ptr& error);

}  // namespace tessera
