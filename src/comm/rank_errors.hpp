#pragma once

#include <cstddef>
#include <exception>
#include <string>
#include <vector>

namespace tessera {

/// Keeps how the ranks of a job failed and finds the one to report.
///
/// Threads: each rank adds its own; the rest when all ranks have ended. All errors are kept until
///          then, so that none is destroyed on a thread while another looks at it.
class RankErrors {
 public:
  explicit RankErrors(int ranks) : errors_(static_cast<std::size_t>(ranks)) {}

  /// Rank `rank` has thrown `error`.
  void add(int rank, std::exception_ptr error) noexcept;
  /// Throws the cause, its text preceded by "rank r: ": the lowest rank's that is not an echo of
  /// another rank's failure. Returns if no rank has thrown.
  void rethrow_cause() const;

 private:
  std::vector<std::exception_ptr> errors_;  // by rank
};

/// Whether `error` only repeats another rank's failure.
[[nodiscard]] bool is_echo(const std::exception_ptr& error) noexcept;

/// Throws `error` again, its text preceded by "rank r: ": as the same type where it is one of the
/// library's, OutOfMemory for std::bad_alloc, else Error.
[[noreturn]] void rethrow_with_rank(const std::exception_ptr& error, int rank);

/// What `error` says; never throws.
[[nodiscard]] std::string text_of(const std::exception_ptr& error);

}  // namespace tessera
