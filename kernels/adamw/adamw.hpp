#pragma once

#include <cstdint>

#include "kernels/step_scalars/step_scalars.hpp"
#include "tessera/base/update_rule.hpp"
#include "tessera/device/stream.hpp"

namespace tessera::kernels {

/// One run of elements of optimizer state; arrays of `elems`, none overlapping.
struct AdamWRun {
  float* weight;
  float* m;
  float* v;
  const float* gradient;  ///< summed over ranks and micro-batches
  std::int64_t elems;
};

/// One fused AdamW step, element by element in fp32, in one pass over memory:
///
///   g  = gradient * scalars->gradient_factor
///   m <- b1 m + (1-b1) g        v <- b2 v + (1-b2) g g
///   w <- w - (lr_t m / (sqrt(v) * s + eps) + lr wd w)
///        with lr_t = lr / (1 - b1^t), s = 1 / sqrt(1 - b2^t), t = scalars->updates,
///        both computed in fp64 and rounded once
///
/// Nothing is written if scalars->apply is 0. Same bits on every backend and for every way of
/// cutting a tensor: only correctly rounded operations, in this order, none contracted.
using AdamWKernel = void(const AdamWRun& run, const AdamW& hyper, const StepScalars* scalars,
                         Stream stream);

namespace reference {
AdamWKernel adamw;
}
namespace cpu {
AdamWKernel adamw;
}

}  // namespace tessera::kernels
