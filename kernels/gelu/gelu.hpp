#pragma once

#include "tessera/kernels/gelu.hpp"

namespace tessera::kernels {

// Both are computed in fp32 by way of z = -2 sqrt(2/pi) (x + 0.044715 x^3) and the logistic
// function s = 1 / (1 + exp(z)), and rounded once. With u = 2^-24: z is off by 5 u |z|, CUDA's exp
// by 4 u, so s by u s ((1 - s) (5 |z| + 4) + 2). On CUDA y = x s is then within 6 u |x|, since s (1
// - s) |z| <= 0.23; and the slope, whose second term adds at most 3 |z| s (1 - s) times (5 |z| +
// 12) u, within 20 u. The CPU's exp has half the error, and keeps within 4 and 16.

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
