#pragma once

#include <cstdint>
#include <string>

#include "tessera/base/dtype.hpp"

namespace tessera {

enum class LossScaleMode : std::uint8_t {
  automatic,  ///< dynamic if the model computes in fp16 or has gradients in it, else off
  off,        ///< 1
  dynamic,    ///< halves with each skipped step, doubles after many good ones
  fixed,      ///< `initial`, always
};

/// What the gradient of the loss is multiplied with, so that small gradients do not vanish in fp16.
/// The update divides by it again: norms, clipping, decay and reports know unscaled gradients only.
/// A scale that is a power of two changes no bit of what neither overflows nor underflows.
struct LossScaling {
  /// No scale grows beyond this: it lifts the smallest value that fp16 has to 1.
  static constexpr float kMost = 16'777'216.0F;  // 2^24

  LossScaleMode mode = LossScaleMode::automatic;
  float initial = 65'536.0F;
  float growth = 2.0F;                  ///< factor after `growth_interval` good steps in a row
  float backoff = 0.5F;                 ///< factor after a skipped step
  std::int64_t growth_interval = 2000;  ///< good steps since the scale last changed
  float minimum = 1.0F;                 ///< no scale falls below this

  friend bool operator==(const LossScaling&, const LossScaling&) = default;
};

/// ConfigError that names the value unless 0 < initial <= kMost and, where the scale is dynamic,
/// growth > 1, 0 < backoff < 1, growth_interval >= 1 and 0 < minimum <= initial.
void validate(const LossScaling& scaling, DType compute, DType gradient);

/// What `automatic` means for a model that computes in `compute` and adds up gradients in
/// `gradient`.
[[nodiscard]] LossScaleMode resolve(LossScaleMode mode, DType compute, DType gradient) noexcept;

/// Of the first step.
[[nodiscard]] float first_loss_scale(const LossScaling& scaling, DType compute,
                                     DType gradient) noexcept;

/// "dynamic from 65536, x2 after 2000 good steps, x0.5 when skipped, at least 1".
[[nodiscard]] std::string describe(const LossScaling& scaling, DType compute, DType gradient);

}  // namespace tessera
