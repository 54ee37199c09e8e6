#pragma once

#include "kernels/update/update_run.hpp"
#include "tessera/base/update_rule.hpp"

namespace tessera::kernels {

/// One SGD step over runs (see UpdateRun), element by element in fp32; `first` is u, null if
/// hyper.momentum is 0:
///
///   g = gradient * scalars->gradient_factor + wd w      u <- mu u + g      w <- w - lr u
using SGDKernel = UpdateKernel<SGD>;

namespace reference {
SGDKernel sgd;
}
namespace cpu {
SGDKernel sgd;
}
namespace cuda {
SGDKernel sgd;
}

}  // namespace tessera::kernels
