#pragma once

#include "tessera/kernels/layer_norm.hpp"

namespace tessera::kernels {

using LayerNormForwardKernel = void(const LayerNormForward& args, Stream stream);
using LayerNormBackwardKernel = void(const LayerNormBackward& args, Stream stream);

// On CUDA no more additions of a row follow each other in fp32 than 32 or columns / 512, the
// larger; what they leave is added in fp64.

namespace reference {
LayerNormForwardKernel layer_norm_forward;
LayerNormBackwardKernel layer_norm_backward;
}  // namespace reference
namespace cpu {
LayerNormForwardKernel layer_norm_forward;
LayerNormBackwardKernel layer_norm_backward;
}  // namespace cpu
namespace cuda {
LayerNormForwardKernel layer_norm_forward;
LayerNormBackwardKernel layer_norm_backward;
}  // namespace cuda

}  // namespace tessera::kernels
