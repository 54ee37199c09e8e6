#pragma once

#include <cstdint>

#include "tessera/base/values.hpp"
#include "tessera/device/stream.hpp"

namespace tessera::kernels {

/// y = 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))). y may be x; both of one dtype.
using GeluForwardKernel = void(ConstValues x, Values y, std::int64_t elems, Stream stream);

/// dx = dy * gelu'(x). dx may be dy; all of one dtype.
using GeluBackwardKernel = void(ConstValues x, ConstValues dy, Values dx, std::int64_t elems,
                                Stream stream);

namespace reference {
GeluForwardKernel gelu_forward;
GeluBackwardKernel gelu_backward;
}  // namespace reference
namespace cpu {
GeluForwardKernel gelu_forward;
GeluBackwardKernel gelu_backward;
}  // namespace cpu
namespace cuda {
GeluForwardKernel gelu_forward;
GeluBackwardKernel gelu_backward;
}  // namespace cuda

}  // namespace tessera::kernels
