#pragma once

#include <cstdint>

namespace tessera {

/// The learning rate after the warm-up.
enum class ScheduleShape : std::uint8_t {
  constant,  ///< It stays at its highest value.
  cosine,    ///< It falls along half a cosine.
};

/// A learning rate for each step: a linear warm-up to `lr`, then `lr` or half a cosine from it to
/// `min_lr`. It has no state; ShardedModel::set_learning_rate takes what `at` returns.
struct Schedule {
  ScheduleShape shape = ScheduleShape::cosine;  ///< The shape after the warm-up.
  float lr = 3e-4F;                             ///< The highest rate.
  float min_lr = 3e-5F;           ///< The rate from `total_steps` on. A constant shape ignores it.
  std::int64_t warmup_steps = 0;  ///< The number of steps of the warm-up.
  std::int64_t total_steps = 1;   ///< The number of steps of the run, including the warm-up.

  /// Returns the rate for `step` (from 0): lr (step+1)/(warmup+1) while step < warmup; then
  /// min_lr + (lr - min_lr) (1 + cos(pi (step - warmup) / (total - warmup))) / 2; min_lr from
  /// `total_steps` on.
  [[nodiscard]] float at(std::int64_t step) const noexcept;
};

}  // namespace tessera
