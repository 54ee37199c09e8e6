#include "tessera/engine/loss_scaling.hpp"

#include <fmt/format.h>

#include <cmath>

#include "tessera/base/error.hpp"

namespace tessera {
namespace {

void require(bool ok, const char* name, double value, std::string_view rule) {
  if (ok) { return; }
  throw ConfigError{fmt::format("loss_scaling.{} is {:g}: it must be {}", name, value, rule)};
}

}  // namespace

LossScaleMode resolve(LossScaleMode mode, DType compute, DType gradient) noexcept {
  if (mode != LossScaleMode::automatic) { return mode; }
  const bool narrow = compute == DType::fp16 || gradient == DType::fp16;
  return narrow ? LossScaleMode::dynamic : LossScaleMode::off;
}

// Written so that NaN fails.
void validate(const LossScaling& scaling, DType compute, DType gradient) {
  const LossScaleMode mode = resolve(scaling.mode, compute, gradient);
  if (mode == LossScaleMode::off) { return; }
  require(scaling.initial > 0.0F && scaling.initial <= LossScaling::kMost, "initial",
          scaling.initial, "above 0 and at most 2^24 (16777216)");
  if (mode == LossScaleMode::fixed) { return; }
  require(scaling.growth > 1.0F && std::isfinite(scaling.growth), "growth", scaling.growth,
          "a finite number above 1; for a scale that never changes use mode fixed");
  require(scaling.backoff > 0.0F && scaling.backoff < 1.0F, "backoff", scaling.backoff,
          "above 0 and below 1");
  require(scaling.growth_interval >= 1, "growth_interval",
          static_cast<double>(scaling.growth_interval), "at least 1 step");
  require(scaling.minimum > 0.0F && scaling.minimum <= scaling.initial, "minimum", scaling.minimum,
          "above 0 and at most the initial scale");
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
