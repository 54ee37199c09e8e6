#include "checkpoint/save_schedule.hpp"

#include <algorithm>
#include <charconv>
#include <utility>

namespace tessera::checkpoint {
namespace {

constexpr std::int64_t kMostStepsBetween = 1'000'000;

}  // namespace

SaveSchedule::SaveSchedule(std::int64_t every, std::chrono::steady_clock::duration interval,
                           Clock clock)
    : every_{every}, interval_{interval}, clock_{std::move(clock)}, began_{clock_()} {}

std::string SaveSchedule::answer(std::int64_t step) {
  const auto now = clock_();
  const auto left = interval_ - (now - began_);
  const std::int64_t steps = step - answered_at_;
  std::int64_t next = 1;
  if (left.count() <= 0) {
    next = 0;
  } else if (answered_at_ >= 0 && steps > 0) {
    const auto one = std::max<std::int64_t>((now - answered_).count() / steps, 1);
    next = std::clamp<std::int64_t>(left.count() / one / 2, 1, kMostStepsBetween);
  }
  answered_ = now;
  answered_at_ = step;
  return std::to_string(next);
}

bool SaveSchedule::hear(std::int64_t step, const std::string& answer) {
  std::int64_t next = 0;
  (void)std::from_chars(answer.data(), answer.data() + answer.size(), next);
  ask_at_ = step + std::max<std::int64_t>(next, 1);
  return next == 0;
}

void SaveSchedule::begin_interval(std::int64_t step) {
  began_ = clock_();
  answered_at_ = -1;
  ask_at_ = step + 1;
}

}  // namespace tessera::checkpoint
