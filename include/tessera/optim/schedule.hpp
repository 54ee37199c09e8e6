#pragma once

#include <cstdint>

namespace tessera {

enum class ScheduleShape : std::uint8_t { constant, cosine };

/// The learning rate by step: a linear warm-up, then `lr` or half a cosine from it to `min_lr`.
struct Schedule {
  ScheduleShape shape = ScheduleShape::cosine;
  float lr = 3e-4F;      ///< the highest
  float min_lr = 3e-5F;  ///< reached at `total_steps`
  std::int64_t warmup_steps = 0;
  std::int64_t total_steps = 1;

  /// The rate for `step` (from 0): lr (step+1)/(warmup+1) while step < warmup; then
  /// min_lr + (lr - min_lr) (1 + cos(pi (step - warmup) / (total - warmup))) / 2; min_lr from
  /// `total_steps` on.
  [[nodiscard]] float at(std::int64_t step) const noexcept;
};

}  // namespace tessera
