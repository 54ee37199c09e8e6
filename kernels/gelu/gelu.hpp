#pragma once

#include "tessera/kernels/gelu.hpp"

namespace tessera::kernels {

// Both are computed in fp32 with z = -2 sqrt(2/pi) (x + 0.044715 x^3) and the logistic function s =
// 1 / (1 + exp(z)), and rounded once. Let u = 2^-24. The error of z is at most 5 u |z| and that of
// CUDA's exp 4 u, so that of s is u s ((1 - s) (5 |z| + 4) + 2). On CUDA y = x s is then within 6 u
// |x|, since s (1 - s) |z| <= 0.23; and the slope, whose second term adds at most 3 |z| s (1 - s)
// times (5 |z| + 12) u, is within 20 u. The CPU's exp has half the error, and its results are
// within 4 u |x| and 16 u.

using GeluForwardKernel = void(ConstValues x, Values y, std::int64_t elems, Stream stream);
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
