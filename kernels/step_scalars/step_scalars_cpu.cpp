#include <algorithm>
#include <cmath>

#include "device/cpu/host_task.hpp"
#include "kernels/step_scalars/step_scalars.hpp"

namespace tessera::kernels::cpu {
namespace {

void finish(StepScalars& scalars, const double* sums, const FinishStep& options) {
  double squares = 0.0;
  for (int rank = 0; rank < options.ranks; ++rank) { squares += sums[rank]; }
  const double average = options.average;
  scalars.grad_norm = std::sqrt(squares) * average;
  scalars.loss = sums[options.ranks] / options.ranks;
  scalars.apply = std::isfinite(scalars.grad_norm) ? 1 : 0;
  scalars.updates += scalars.apply;

  double clip = 1.0;
  if (scalars.apply != 0 && options.clip_norm > 0.0F) {
    clip = std::min(1.0, static_cast<double>(options.clip_norm) / (scalars.grad_norm + 1e-6));
  }
  scalars.clip = static_cast<float>(clip);
  scalars.gradient_factor = static_cast<float>(average * clip);
}

}  // namespace

void finish_step(StepScalars* scalars, const double* sums, const FinishStep& options,
                 Stream stream) {
  enqueue(stream, [=] { finish(*scalars, sums, options); });
}

}  // namespace tessera::kernels::cpu
