#pragma once

#include <cmath>

#include "kernels/step_scalars/step_scalars.hpp"
#include "kernels/support/host_device.hpp"

namespace tessera::kernels {

/// Moves the loss scale after a step, applied or skipped.
TESSERA_HOST_DEVICE inline void move_scale(StepScalars& scalars,
                                           const FinishStep& options) noexcept {
  float& scale = scalars.loss_scale;
  if (scalars.apply == 0) {
    scalars.good_steps = 0;
    ++scalars.skipped_in_a_row;
    ++scalars.skipped;
    const float less = scale * options.scale_backoff;
    scale = less < options.least_scale ? options.least_scale : less;
    return;
  }
  ++scalars.good_steps;
  scalars.skipped_in_a_row = 0;
  if (options.growth_interval == 0 || scalars.good_steps < options.growth_interval) { return; }
  scalars.good_steps = 0;
  const float more = scale * options.scale_growth;
  scale = options.most_scale < more ? options.most_scale : more;
}

/// The factor of gradients and losses that makes means over all tokens means over those that count.
TESSERA_HOST_DEVICE inline double weight_of(const double* sums,
                                            const FinishStep& options) noexcept {
  if (options.most_counted == 0.0) { return 1.0; }
  const double counted = sums[options.norms + 1];
  return counted == 0.0 ? 0.0 : options.most_counted / counted;
}

/// Implements FinishStepKernel with correctly rounded operations only, so a processor and a GPU get
/// the same bits.
TESSERA_HOST_DEVICE inline void finish(StepScalars& scalars, const double* sums,
                                       const FinishStep& options) noexcept {
  double squares = 0.0;
  for (int i = 0; i < options.norms; ++i) { squares += sums[i]; }
  const double weight = weight_of(sums, options);
  const double average = options.average * weight;
  const double scale = scalars.loss_scale;
  scalars.grad_norm = std::sqrt(squares) * average / scale;
  scalars.loss = sums[options.norms] / options.ranks * weight;
  scalars.apply = std::isfinite(scalars.grad_norm) ? 1 : 0;
  scalars.updates += scalars.apply;

  double clip = 1.0;
  if (scalars.apply != 0 && options.clip_norm > 0.0F) {
    const double wanted = static_cast<double>(options.clip_norm) / (scalars.grad_norm + 1e-6);
    clip = wanted < 1.0 ? wanted : 1.0;
  }
  scalars.clip = static_cast<float>(clip);
  scalars.gradient_factor = static_cast<float>(average * clip / scale);
  scalars.used_loss_scale = scalars.loss_scale;
  move_scale(scalars, options);
}

}  // namespace tessera::kernels
