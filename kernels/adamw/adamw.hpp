#pragma once

#include "kernels/update/update_run.hpp"
#include "tessera/base/update_rule.hpp"

namespace tessera::kernels {

/// One fused AdamW step over runs (see UpdateRun), element by element in fp32:
///
///   g  = gradient * scalars->gradient_factor
///   m <- b1 m + (1-b1) g        v <- b2 v + (1-b2) g g
///   w <- w - (lr_t m / (sqrt(v) * s + eps) + lr wd w)
///        with lr_t = lr / (1 - b1^t), s = 1 / sqrt(1 - b2^t), t = scalars->updates,
///        both computed in fp64 and rounded once
///
/// The weight is updated from m and v before they are rounded to bf16, if they are bf16.
using AdamWKernel = UpdateKernel<AdamW>;

namespace reference {
AdamWKernel adamw;
}
namespace cpu {
AdamWKernel adamw;
}
namespace cuda {
AdamWKernel adamw;
}

}  // namespace tessera::kernels
