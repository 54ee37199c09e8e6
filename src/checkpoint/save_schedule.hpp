#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

namespace tessera::checkpoint {

/// When a save is due: every `every` steps, and every `interval` by the clock of rank 0.
///
/// Ranks need not ask rank 0 after each step. Its answer says in how many steps they ask again:
/// half as many as it expects to fit into the remaining time, so that the last questions come step
/// by step.
class SaveSchedule {
 public:
  using Clock = std::function<std::chrono::steady_clock::time_point()>;
  /// 0 means never.
  SaveSchedule(std::int64_t every, std::chrono::steady_clock::duration interval, Clock clock);

  /// Whether a save is due by the number of steps.
  [[nodiscard]] bool is_due_at(std::int64_t step) const noexcept {
    return every_ > 0 && step % every_ == 0;
  }
  /// Whether rank 0 must be asked after `step`.
  [[nodiscard]] bool asks_at(std::int64_t step) const noexcept {
    return interval_.count() > 0 && step >= ask_at_;
  }
  /// On rank 0: the steps until the next question; 0 if a save is due.
  [[nodiscard]] std::string answer(std::int64_t step);
  /// Takes rank 0's answer after `step`. Returns whether a save is due.
  [[nodiscard]] bool hear(std::int64_t step, const std::string& answer);
  /// A save has begun.
  void begin_interval(std::int64_t step);

 private:
  std::int64_t every_;
  std::chrono::steady_clock::duration interval_;
  Clock clock_;
  std::chrono::steady_clock::time_point began_;  // start of this interval
  std::chrono::steady_clock::time_point answered_;
  std::int64_t answered_at_ = -1;  // step; negative: not since the interval began
  std::int64_t ask_at_ = 0;
};

}  // namespace tessera::checkpoint
