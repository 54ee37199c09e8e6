#pragma once

#include "tessera/kernels/glu.hpp"

namespace tessera::kernels {

using GLUForwardKernel = void(const GLUForward& args, Stream stream);
using GLUBackwardKernel = void(const GLUBackward& args, Stream stream);

namespace reference {
GLUForwardKernel glu_forward;
GLUBackwardKernel glu_backward;
}  // namespace reference
namespace cpu {
GLUForwardKernel glu_forward;
GLUBackwardKernel glu_backward;
}  // namespace cpu
namespace cuda {
GLUForwardKernel glu_forward;
GLUBackwardKernel glu_backward;
}  // namespace cuda

}  // namespace tessera::kernels
