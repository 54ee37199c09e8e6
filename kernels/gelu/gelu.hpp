#pragma once

#include <cstdint>

#include "tessera/device/stream.hpp"

namespace tessera::kernels {

/// y = 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))). y may be x.
using GeluForwardKernel = void(const float* x, float* y, std::int64_t elems, Stream stream);

/// dx = dy * gelu'(x). dx may be dy.
using GeluBackwardKernel = void(const float* x, const float* dy, float* dx, std::int64_t elems,
                                Stream stream);

namespace reference {
GeluForwardKernel gelu_forward;
GeluBackwardKernel gelu_backward;
}  // namespace reference
namespace cpu {
GeluForwardKernel gelu_forward;
GeluBackwardKernel gelu_backward;
}  // namespace cpu

}  // namespace tessera::kernels
