#pragma once

#include "kernels/update/update_run.hpp"
#include "tessera/base/update_rule.hpp"

namespace tessera::kernels {

/// One fused Lion step over runs (see UpdateRun), element by element in fp32; `first` is m:
///
///   g  = gradient * scalars->gradient_factor        u = b1 m + (1-b1) g
///   w <- w - (lr sign(u) + lr wd w), the sign of 0 being 0
///   m <- b2 m + (1-b2) g
using LionKernel = UpdateKernel<Lion>;

namespace reference {
LionKernel lion;
}
namespace cpu {
LionKernel lion;
}
namespace cuda {
LionKernel lion;
}

}  // namespace tessera::kernels
