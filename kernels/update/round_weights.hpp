#pragma once

#include "kernels/update/update_run.hpp"

namespace tessera::kernels {

/// parameter = master, rounded as the run says: the last step of an update that a user's code
/// computed. Masters are whole. Does nothing if there is no low-precision copy, or if
/// StepScalars::apply is 0.
using RoundWeightsKernel = void(const UpdateRun& run, const StepScalars* scalars, Stream stream);

namespace reference {
RoundWeightsKernel round_weights;
}
namespace cpu {
RoundWeightsKernel round_weights;
}
namespace cuda {
RoundWeightsKernel round_weights;
}

}  // namespace tessera::kernels
