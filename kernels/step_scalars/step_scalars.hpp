#pragma once

#include <cstdint>

#include "tessera/device/stream.hpp"

namespace tessera::kernels {

/// What all ranks agree on in a step, in device memory. `sums` is added over the ranks first, then
/// `finish_step` fills in the rest and the optimizer kernels read it: no host sync.
struct StepScalars {
  double sums[2] = {0.0, 0.0};   ///< squared norm of the summed gradients; sum of the ranks' losses
  double grad_norm = 0.0;        ///< of the averaged gradients
  double loss = 0.0;             ///< mean over ranks
  float clip = 1.0F;             ///< min(1, clip_norm / (grad_norm + 1e-6)), or 1
  float gradient_factor = 1.0F;  ///< what a summed gradient is multiplied by: average and clip
  std::int32_t apply = 1;        ///< 0: the norm is not finite, nothing is updated
  std::int32_t reserved = 0;
  std::int64_t updates = 0;  ///< t of Adam: updates applied, this one included
};

struct FinishStep {
  float average = 1.0F;    ///< 1 / (ranks * micro-batches)
  float clip_norm = 0.0F;  ///< 0: not clipped
  int ranks = 1;
};

/// scalars: [in] sums, updates; [out] the rest. `updates` grows by one if the norm is finite.
using FinishStepKernel = void(StepScalars* scalars, const FinishStep& options, Stream stream);

namespace cpu {
FinishStepKernel finish_step;
}

}  // namespace tessera::kernels
