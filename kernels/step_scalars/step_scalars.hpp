#pragma once

#include <cstdint>

#include "tessera/device/stream.hpp"

namespace tessera::kernels {

/// The values of a step that all ranks agree on, in device memory. The optimizer kernels and the
/// kernel that computes the gradient of the loss read them there: no host sync.
struct StepScalars {
  double grad_norm = 0.0;  ///< L2 norm of the averaged gradients, unscaled
  double loss = 0.0;       ///< mean over ranks
  float clip = 1.0F;       ///< min(1, clip_norm / (grad_norm + 1e-6)), or 1
  /// The factor of a summed gradient: average, clip, unscale.
  float gradient_factor = 1.0F;
  std::int64_t apply = 1;    ///< 0: the norm is not finite, and nothing is updated
  std::int64_t updates = 0;  ///< t of Adam: updates applied, including this one

  float loss_scale = 1.0F;       ///< of the gradients of the next step
  float used_loss_scale = 1.0F;  ///< of the gradients of this step
  std::int64_t good_steps = 0;   ///< applied since the scale last changed or a step was skipped
  std::int64_t skipped_in_a_row = 0;  ///< including this step; 0 if it was applied
  std::int64_t skipped = 0;           ///< since the first step
};

struct FinishStep {
  float average = 1.0F;    ///< 1 / (ranks * micro-batches)
  float clip_norm = 0.0F;  ///< 0: not clipped
  int ranks = 1;           ///< ranks that compute with different data
  int norms = 1;           ///< squared norms that the step's norm is computed from
  /// What all ranks would have counted had every token counted: the gradients and losses are then
  /// divided by sums[norms + 1] / most_counted. 0: they are not, and there is no such sum.
  double most_counted = 0.0;
  // How the loss scale moves; these defaults keep it constant.
  float scale_growth = 1.0F;
  float scale_backoff = 1.0F;
  std::int64_t growth_interval = 0;  ///< 0: the scale never grows
  float least_scale = 0.0F;
  float most_scale = 1.0F;  ///< upper limit of growth
};

/// `sums` holds `norms` squared norms of the summed, scaled gradients in each rank's shard, then
/// the sum of the losses of `ranks` ranks (never scaled), and perhaps what they counted. In fp64,
/// with s = loss_scale and w = most_counted / sums[norms + 1], 0 if nothing was counted, or 1:
///
///   average   = average * w
///   grad_norm = sqrt(sums[0] + sums[1] + ... in this order) * average / s
///   loss      = sums[norms] / ranks * w
///   clip      = clip_norm > 0 ? min(1, clip_norm / (grad_norm + 1e-6)) : 1
///   gradient_factor = average * clip / s (rounded to fp32 once)
///   apply     = grad_norm is finite; `updates` grows by one if so, else clip is 1
///   used_loss_scale = s
///   loss_scale <- max(s * scale_backoff, least_scale)  if the step is skipped
///                 min(s * scale_growth, most_scale)    after growth_interval good steps
///
/// `good_steps` restarts at 0 when the step is skipped or the scale grows.
using FinishStepKernel = void(StepScalars* scalars, const double* sums, const FinishStep& options,
                              Stream stream);

namespace reference {
FinishStepKernel finish_step;
}
namespace cpu {
FinishStepKernel finish_step;
}
namespace cuda {
FinishStepKernel finish_step;
}

}  // namespace tessera::kernels
