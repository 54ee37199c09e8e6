#pragma once

#include <cstddef>
#include <vector>

#include "tools/measure/step.hpp"

namespace tessera::bench {

/// Steps of one strategy without and with WorldOptions::trace, in turn.
struct RecordingCost {
  Strategy strategy = {};
  Series off = {}, on = {};          ///< seconds per step
  Series cpu_off = {}, cpu_on = {};  ///< processor seconds per step, of all ranks
  std::size_t records = 0;           ///< of one step of rank 0

  /// What recording adds, as a fraction of the step: the median over the rounds.
  [[nodiscard]] double seconds_part() const { return median_ratio(on, off) - 1; }
  [[nodiscard]] double cpu_part() const { return median_ratio(cpu_on, cpu_off) - 1; }
};

/// Runs two jobs in this process, one that records (and keeps one step) and one that does not. They
/// take turns step by step, so that a disturbance affects both.
[[nodiscard]] std::vector<RecordingCost> measure_recording(const StepOptions& options);

}  // namespace tessera::bench
