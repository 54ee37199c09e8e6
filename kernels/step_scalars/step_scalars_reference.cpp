#include <cmath>

#include "kernels/step_scalars/step_scalars.hpp"

namespace tessera::kernels::reference {

void finish_step(StepScalars* scalars, const double* sums, const FinishStep& options, Stream) {
  const StepScalars before = *scalars;
  const double scale = before.loss_scale;
  double weight = 1.0;
  if (options.most_counted != 0.0) {
    const double counted = sums[options.norms + 1];
    weight = counted == 0.0 ? 0.0 : options.most_counted / counted;
  }
  const double average = static_cast<double>(options.average) * weight;
  double squares = 0.0;
  for (int i = 0; i < options.norms; ++i) { squares = squares + sums[i]; }
  const double norm = std::sqrt(squares) * average / scale;
  const bool finite = std::isfinite(norm);
  const bool grows =
      finite && options.growth_interval > 0 && before.good_steps + 1 >= options.growth_interval;

  double clip = 1.0;
  if (finite && options.clip_norm > 0.0F) {
    const double wanted = static_cast<double>(options.clip_norm) / (norm + 1e-6);
    clip = wanted < 1.0 ? wanted : 1.0;
  }
  float next = before.loss_scale;
  if (!finite) { next = std::fmax(next * options.scale_backoff, options.least_scale); }
  if (grows) { next = std::fmin(next * options.scale_growth, options.most_scale); }

  *scalars = {.grad_norm = norm,
              .loss = sums[options.norms] / options.ranks * weight,
              .clip = static_cast<float>(clip),
              .gradient_factor = static_cast<float>(average * clip / scale),
              .apply = finite ? 1 : 0,
              .updates = before.updates + (finite ? 1 : 0),
              .loss_scale = next,
              .used_loss_scale = before.loss_scale,
              .good_steps = finite && !grows ? before.good_steps + 1 : 0,
              .skipped_in_a_row = finite ? 0 : before.skipped_in_a_row + 1,
              .skipped = before.skipped + (finite ? 0 : 1)};
}

}  // namespace tessera::kernels::reference
