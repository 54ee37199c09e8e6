#pragma once

#include <functional>
#include <span>
#include <vector>

namespace tessera::bench {

/// Times of one thing, one per round.
struct Series {
  std::vector<double> seconds;

  [[nodiscard]] double least() const;
  [[nodiscard]] double median() const;
};

/// The middle value, or the mean of the middle two. `values` is not empty.
[[nodiscard]] double median_of(std::vector<double> values);

/// The median over the rounds of a's seconds / b's seconds: a disturbance of a round affects both.
[[nodiscard]] double median_ratio(const Series& a, const Series& b);

[[nodiscard]] double seconds_since(double begin);
/// Seconds on a clock that only goes forward.
[[nodiscard]] double now();
/// Processor seconds that all threads of this process have used: other programs hardly affect them.
[[nodiscard]] double cpu_now();

/// Runs each of `cases` once untimed, then all of them in turn (A B C A B C ...), `rounds` times.
[[nodiscard]] std::vector<Series> in_turn(int rounds, std::span<const std::function<void()>> cases);

}  // namespace tessera::bench
