#pragma once

#include "tessera/kernels/swiglu.hpp"

namespace tessera::kernels {

using SwiGLUForwardKernel = void(const SwiGLUForward& args, Stream stream);
using SwiGLUBackwardKernel = void(const SwiGLUBackward& args, Stream stream);

namespace reference {
SwiGLUForwardKernel swiglu_forward;
SwiGLUBackwardKernel swiglu_backward;
}  // namespace reference
namespace cpu {
SwiGLUForwardKernel swiglu_forward;
SwiGLUBackwardKernel swiglu_backward;
}  // namespace cpu
namespace cuda {
SwiGLUForwardKernel swiglu_forward;
SwiGLUBackwardKernel swiglu_backward;
}  // namespace cuda

}  // namespace tessera::kernels
