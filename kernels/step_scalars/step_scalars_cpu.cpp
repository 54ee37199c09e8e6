#include <algorithm>
#include <cmath>

#include "device/cpu/host_task.hpp"
#include "kernels/step_scalars/step_scalars.hpp"

namespace tessera::kernels::cpu {
namespace {

void move_scale(StepScalars& scalars, const FinishStep& options) {
  float& scale = scalars.loss_scale;
  if (scalars.apply == 0) {
    scalars.good_steps = 0;
    ++scalars.skipped_in_a_row;
    ++scalars.skipped;
    scale = std::max(scale * options.scale_backoff, options.least_scale);
    return;
  }
  ++scalars.good_steps;
  scalars.skipped_in_a_row = 0;
  if (options.growth_interval == 0 || scalars.good_steps < options.growth_interval) { return; }
  scalars.good_steps = 0;
  scale = std::min(scale * options.scale_growth, options.most_scale);
}

void finish(StepScalars& scalars, const double* sums, const FinishStep& options) {
  double squares = 0.0;
  for (int rank = 0; rank < options.ranks; ++rank) { squares += sums[rank]; }
  const double average = options.average;
  const double scale = scalars.loss_scale;
  scalars.grad_norm = std::sqrt(squares) * average / scale;
  scalars.loss = sums[options.ranks] / options.ranks;
  scalars.apply = std::isfinite(scalars.grad_norm) ? 1 : 0;
  scalars.updates += scalars.apply;

  double clip = 1.0;
  if (scalars.apply != 0 && options.clip_norm > 0.0F) {
    clip = std::min(1.0, static_cast<double>(options.clip_norm) / (scalars.grad_norm + 1e-6));
  }
  scalars.clip = static_cast<float>(clip);
  scalars.gradient_factor = static_cast<float>(average * clip / scale);
  scalars.used_loss_scale = scalars.loss_scale;
  move_scale(scalars, options);
}

}  // namespace

void finish_step(StepScalars* scalars, const double* sums, const FinishStep& options,
                 Stream stream) {
  enqueue(stream, [=] { finish(*scalars, sums, options); });
}

}  // namespace tessera::kernels::cpu
