#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>

namespace tessera::comm {

/// A clock for deadlines between ranks. Each waiter has its own. The clock stops while the waiter
/// is suspended: a job that is suspended as a whole (SIGSTOP, a batch system, a debugger) resumes
/// without an error, and a process that was suspended alone does not blame the others.
///
/// The waiter reads the clock at least every `tick`. A longer gap between two readings counts as
/// two ticks. A waiter that is starved of processor time still reaches its deadline: each reading
/// advances the clock. Calls that may block for longer than a tick go through `count_all`.
///
/// Threads: one at a time.
class WaitClock {
 public:
  using Real = std::chrono::steady_clock;
  using Duration = Real::duration;
  using Time = Real::time_point;
  using ReadTime = Time (*)();

  /// For waits of up to about `longest`.
  explicit WaitClock(Duration longest, ReadTime real = &Real::now)
      : real_{real}, most_{most_of_gap(longest)}, read_{real()}, now_{read_} {}

  /// Reads the clock.
  [[nodiscard]] Time now() noexcept {
    const Time real = real_();
    now_ += std::min(real - read_, most_);
    read_ = real;
    return now_;
  }
  /// Returns what `call` returns, and counts all of its time, since it may block without reading
  /// the clock. A suspension within the call counts too.
  template <class Call>
  [[nodiscard]] auto count_all(const Call& call) {
    (void)now();
    auto result = call();
    const Time real = real_();
    now_ += real - read_;
    read_ = real;
    return result;
  }
  /// How long a waiter may sleep between two readings.
  [[nodiscard]] Duration tick() const noexcept { return most_ / 2; }

  /// Waits until `done`, at most until `end`. Returns whether it is done.
  template <class Done>
  [[nodiscard]] bool wait_until(std::condition_variable& changed,
                                std::unique_lock<std::mutex>& lock, Time end, const Done& done) {
    for (Time at = now(); !done(); at = now()) {
      if (at >= end) { return false; }
      (void)changed.wait_for(lock, std::min(tick(), end - at));
    }
    return true;
  }
  /// The same for `longest` from now on.
  template <class Done>
  [[nodiscard]] bool wait_for(std::condition_variable& changed, std::unique_lock<std::mutex>& lock,
                              Duration longest, const Done& done) {
    return wait_until(changed, lock, now() + longest, done);
  }

 private:
  // Short enough that a wait survives several suspensions, long enough for a busy machine and for
  // loops that sleep between attempts.
  [[nodiscard]] static Duration most_of_gap(Duration longest) noexcept {
    using std::chrono::milliseconds;
    return std::clamp<Duration>(longest / 16, milliseconds{100}, milliseconds{1000});
  }

  ReadTime real_;
  Duration most_;
  Time read_;  // the real time of the last reading
  Time now_;
};

/// A WaitClock with an end: a wait of `longest` from its construction on.
class Patience {
 public:
  explicit Patience(WaitClock::Duration longest) : clock_{longest}, end_{clock_.now() + longest} {}
  [[nodiscard]] bool over() noexcept { return clock_.now() > end_; }

 private:
  WaitClock clock_;
  WaitClock::Time end_;
};

}  // namespace tessera::comm
