#pragma once

#include <exception>
#include <mutex>
#include <string>

namespace tessera {

/// Collects how the ranks of a job failed and finds the one to report. Threads: any.
class RankErrors {
 public:
  /// Rank `rank` has thrown `error`.
  void add(int rank, const std::exception_ptr& error) noexcept;
  /// Throws the cause, its text preceded by "rank r: ": the lowest rank's that is not an echo of
  /// another rank's failure. Returns if no rank has thrown.
  void rethrow_cause() const;

 private:
  mutable std::mutex mutex_;
  std::exception_ptr error_;
  int rank_ = 0;
  bool echo_ = true;
};

/// What `error` says; never throws.
[[nodiscard]] std::string text_of(const std::exception_ptr& error);

}  // namespace tessera
