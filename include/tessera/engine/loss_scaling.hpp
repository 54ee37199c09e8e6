#pragma once

#include <cstdint>
#include <string>

#include "tessera/base/dtype.hpp"

namespace tessera {

/// How the loss scale changes from step to step.
enum class LossScaleMode : std::uint8_t {
  automatic,  ///< `dynamic` if the model computes or has gradients in fp16, else `off`.
  off,        ///< The scale is 1.
  dynamic,    ///< The scale falls with each skipped step and grows after many good ones.
  fixed,      ///< The scale is always `initial`.
};

/// Options of loss scaling: the gradient of the loss is multiplied by a scale, so that small
/// gradients do not vanish in fp16. The update divides by it again: norms, clipping, decay and
/// reports are of unscaled gradients. A scale that is a power of two changes no bit of a result
/// unless values overflow or underflow.
struct LossScaling {
  /// The largest scale, 2^24. It scales the smallest value of fp16 to 1.
  static constexpr float kMost = 16'777'216.0F;  // 2^24

  /// How the scale changes. If it is off, the values below have no effect.
  LossScaleMode mode = LossScaleMode::automatic;
  /// The scale of the first step, above 0 and at most kMost.
  float initial = 65'536.0F;
  /// The factor, above 1, after `growth_interval` good steps in a row. `dynamic` uses it.
  float growth = 2.0F;
  /// The factor, above 0 and below 1, after a skipped step. `dynamic` uses it.
  float backoff = 0.5F;
  /// The good steps, 1 or more, that must follow the last change before the scale grows.
  std::int64_t growth_interval = 2000;
  /// The smallest scale, above 0 and at most `initial`. `dynamic` uses it.
  float minimum = 1.0F;

  friend bool operator==(const LossScaling&, const LossScaling&) = default;
};

/// Throws ConfigError that names the value if the mode uses a value that is out of range.
void validate(const LossScaling& scaling, DType compute, DType gradient);

/// Returns `mode`, with `automatic` resolved for a model that computes in `compute` and accumulates
/// gradients in `gradient`.
[[nodiscard]] LossScaleMode resolve(LossScaleMode mode, DType compute, DType gradient) noexcept;

/// Returns the scale of the first step: `initial`, or 1 if the mode is off.
[[nodiscard]] float first_loss_scale(const LossScaling& scaling, DType compute,
                                     DType gradient) noexcept;

/// Returns a text such as "dynamic from 65536, x2 after 2000 good steps, x0.5 when skipped, at
/// least 1".
[[nodiscard]] std::string describe(const LossScaling& scaling, DType compute, DType gradient);

}  // namespace tessera
