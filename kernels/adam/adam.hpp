#pragma once

#include "kernels/update/update_run.hpp"
#include "tessera/base/update_rule.hpp"

namespace tessera::kernels {

/// One fused Adam step over runs (see UpdateRun), element by element in fp32:
///
///   g  = gradient * scalars->gradient_factor + wd w
///   m <- b1 m + (1-b1) g        v <- b2 v + (1-b2) g g
///   w <- w - lr_t m / (sqrt(v) * s + eps)
///        with lr_t and s as for AdamW
///
/// The weight is updated from m and v before they are rounded to bf16, if they are bf16.
using AdamKernel = UpdateKernel<Adam>;

namespace reference {
AdamKernel adam;
}
namespace cpu {
AdamKernel adam;
}
namespace cuda {
AdamKernel adam;
}

}  // namespace tessera::kernels
