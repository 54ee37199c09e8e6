#pragma once

#include <cstdint>

#include "kernels/step_scalars/step_scalars.hpp"
#include "tessera/base/update_rule.hpp"
#include "tessera/device/stream.hpp"

namespace tessera::kernels {

struct SGDRun {
  float* weight;
  float* momentum;        ///< null if hyper.momentum is 0
  const float* gradient;  ///< summed over ranks and micro-batches
  std::int64_t elems;
};

/// One SGD step, element by element in fp32 (see tessera::SGD):
///
///   g = gradient * scalars->gradient_factor + wd w      u <- mu u + g      w <- w - lr u
///
/// Nothing is written if scalars->apply is 0. Bits as for AdamW.
using SGDKernel = void(const SGDRun& run, const SGD& hyper, const StepScalars* scalars,
                       Stream stream);

namespace reference {
SGDKernel sgd;
}
namespace cpu {
SGDKernel sgd;
}

}  // namespace tessera::kernels
