#pragma once

#include "tessera/kernels/rms_norm.hpp"

namespace tessera::kernels {

using RMSNormForwardKernel = void(const RMSNormForward& args, Stream stream);
using RMSNormBackwardKernel = void(const RMSNormBackward& args, Stream stream);

// On CUDA a row is summed like that of a layer norm.

namespace reference {
RMSNormForwardKernel rms_norm_forward;
RMSNormBackwardKernel rms_norm_backward;
}  // namespace reference
namespace cpu {
RMSNormForwardKernel rms_norm_forward;
RMSNormBackwardKernel rms_norm_backward;
}  // namespace cpu
namespace cuda {
RMSNormForwardKernel rms_norm_forward;
RMSNormBackwardKernel rms_norm_backward;
}  // namespace cuda

}  // namespace tessera::kernels
