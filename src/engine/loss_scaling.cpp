#include "tessera/engine/loss_scaling.hpp"

#include <fmt/format.h>

namespace tessera {

LossScaleMode resolve(LossScaleMode mode, DType compute, DType gradient) noexcept {
  if (mode != LossScaleMode::automatic) { return mode; }
  const bool narrow = compute == DType::fp16 || gradient == DType::fp16;
  return narrow ? LossScaleMode::dynamic : LossScaleMode::off;
}

float first_loss_scale(const LossScaling& scaling, DType compute, DType gradient) noexcept {
  return resolve(scaling.mode, compute, gradient) == LossScaleMode::off ? 1.0F : scaling.initial;
}

std::string describe(const LossScaling& scaling, DType compute, DType gradient) {
  switch (resolve(scaling.mode, compute, gradient)) {
    case LossScaleMode::dynamic:
      return fmt::format("dynamic from {}, x{} after {} good steps, x{} when skipped, at least {}",
                         scaling.initial, scaling.growth, scaling.growth_interval, scaling.backoff,
                         scaling.minimum);
    case LossScaleMode::fixed:
      return fmt::format("fixed at {}", scaling.initial);
    case LossScaleMode::automatic:
    case LossScaleMode::off:
      break;
  }
  return "off";
}

}  // namespace tessera
