#pragma once

#include "tessera/kernels/layer_norm.hpp"

namespace tessera::kernels {

using LayerNormForwardKernel = void(const LayerNormForward& args, Stream stream);
using LayerNormBackwardKernel = void(const LayerNormBackward& args, Stream stream);

// On CUDA a row's sum has at most max(32, columns / 512) consecutive additions in fp32; the partial
// sums are added in fp64.

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
