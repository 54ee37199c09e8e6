#pragma once

#include <vector>

#include "tools/measure/step.hpp"

namespace tessera::bench {

/// The same total work on each number of ranks.
struct ScalingOptions {
  StepOptions step;  ///< its `batch` is the sum over the ranks, its `ranks` is not used
  std::vector<int> ranks{1, 2, 4, 8};
};

struct ScaledSteps {
  Strategy strategy{};
  Series series;
  Series cpu;  ///< processor seconds of all ranks together
};

struct ScalingPoint {
  int ranks = 0;
  std::vector<ScaledSteps> strategies;
};

/// Measures steps of each strategy on each number of ranks, one of each in every round: the jobs
/// run in one process and take turns, so that a disturbance of the machine affects all of them
/// alike. The first two rounds are not timed.
[[nodiscard]] std::vector<ScalingPoint> measure_scaling(const ScalingOptions& options);

/// The time of a step relative to the same step on two ranks (on the fewest, if two are not among
/// them): the median over the rounds.
struct AgainstTwo {
  double seconds = 0;
  double cpu = 0;
};
[[nodiscard]] AgainstTwo against_two(const std::vector<ScalingPoint>& points, std::size_t point,
                                     std::size_t strategy);

}  // namespace tessera::bench
