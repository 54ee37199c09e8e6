#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <exception>
#include <functional>
#include <list>
#include <mutex>
#include <vector>

#include "checkpoint/background_job.hpp"

namespace tessera::checkpoint {

/// Several threads fill rounds, numbered from 0, ahead of the thread that uses them in order. Round
/// r fills slot r % slots of a ring: it begins when round r - slots was used.
///
/// Errors:  the error of a round is thrown by the call that waits for it. Earlier rounds can still
///          be used; no later round begins.
/// Threads: `next`, `wait_until` and `release` belong to one thread. The destructor waits for the
///          rounds that are being filled.
class ReadAhead {
 public:
  /// Fills a round, on the thread numbered `reader`, from 0.
  using Fill = std::function<void(std::size_t round, std::size_t reader)>;
  using Clock = std::chrono::steady_clock;

  /// Begins at once. `slots` and `readers` are at least 1.
  ReadAhead(std::size_t rounds, std::size_t slots, std::size_t readers, Fill fill);
  ~ReadAhead();
  ReadAhead(const ReadAhead&) = delete;
  ReadAhead& operator=(const ReadAhead&) = delete;

  /// The round to be used next; `rounds` once all were used.
  [[nodiscard]] std::size_t next() const noexcept { return used_; }
  /// Waits for round `next()`, which must exist, until `end`. Returns whether it is filled.
  [[nodiscard]] bool wait_until(Clock::time_point end);
  /// Call it when round `next()` is filled and was used: frees its slot.
  void release();

 private:
  struct Slot {
    bool filled = false;
    std::exception_ptr failure;
  };
  void work(std::size_t reader);

  std::size_t rounds_;
  Fill fill_;
  std::mutex mutex_;
  std::condition_variable room_;
  std::condition_variable filled_;
  std::vector<Slot> slots_;
  std::size_t begun_ = 0;  // rounds
  std::size_t used_ = 0;   // rounds
  bool ended_ = false;
  std::list<BackgroundJob> readers_;  // destroyed first
};

}  // namespace tessera::checkpoint
