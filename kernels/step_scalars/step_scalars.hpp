#pragma once

#include <cstdint>

#include "tessera/device/stream.hpp"

namespace tessera::kernels {

/// What all ranks agree on in a step, in device memory, read by the optimizer kernels: no host
/// sync.
struct StepScalars {
  double grad_norm = 0.0;        ///< L2 norm of the averaged gradients
  double loss = 0.0;             ///< mean over ranks
  float clip = 1.0F;             ///< min(1, clip_norm / (grad_norm + 1e-6)), or 1
  float gradient_factor = 1.0F;  ///< what a summed gradient is multiplied by: average and clip
  std::int64_t apply = 1;        ///< 0: the norm is not finite, nothing is updated
  std::int64_t updates = 0;      ///< t of Adam: updates applied, this one included
};

struct FinishStep {
  float average = 1.0F;    ///< 1 / (ranks * micro-batches)
  float clip_norm = 0.0F;  ///< 0: not clipped
  int ranks = 1;
};

/// `sums` holds `ranks` squared norms, of the summed gradients in each rank's shard, then the sum
/// of the ranks' losses. In fp64:
///
///   grad_norm = sqrt(sums[0] + sums[1] + ... in this order) * average
///   loss      = sums[ranks] / ranks
///   clip      = clip_norm > 0 ? min(1, clip_norm / (grad_norm + 1e-6)) : 1
///   gradient_factor = average * clip (rounded to fp32 once)
///   apply     = grad_norm is finite; `updates` grows by one if so, else clip is 1
using FinishStepKernel = void(StepScalars* scalars, const double* sums, const FinishStep& options,
                              Stream stream);

namespace cpu {
FinishStepKernel finish_step;
}

}  // namespace tessera::kernels
