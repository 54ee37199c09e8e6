#include "tessera/optim/schedule.hpp"

#include <cmath>
#include <numbers>

namespace tessera {

// In double, rounded once, so that the rate does not depend on how the formula is evaluated.
float Schedule::at(std::int64_t step) const noexcept {
  const auto highest = static_cast<double>(lr);
  const auto lowest = static_cast<double>(min_lr);
  if (step < warmup_steps) {
    return static_cast<float>(highest * static_cast<double>(step + 1) /
                              static_cast<double>(warmup_steps + 1));
  }
  if (shape == ScheduleShape::constant) { return lr; }
  if (step >= total_steps) { return min_lr; }
  const double progress =
      static_cast<double>(step - warmup_steps) / static_cast<double>(total_steps - warmup_steps);
  const double falling = (1.0 + std::cos(std::numbers::pi * progress)) / 2.0;
  return static_cast<float>(lowest + (highest - lowest) * falling);
}

}  // namespace tessera
