#pragma once

#include "tessera/kernels/gelu.hpp"

namespace tessera::kernels {

// Both forms are computed in fp32 and rounded once. Let u = 2^-24.
//
// The tanh form: z = -2 sqrt(2/pi) (x + 0.044715 x^3) and the logistic function s = 1 / (1 +
// exp(z)). The error of z is at most 5 u |z| and that of CUDA's exp 4 u, so that of s is u s ((1 -
// s) (5 |z| + 4) + 2). On CUDA y = x s is then within 6 u |x|, since s (1 - s) |z| <= 0.23; and the
// slope, whose second term adds at most 3 |z| s (1 - s) times (5 |z| + 12) u, is within 20 u. The
// CPU's exp has half the error, and its results are within 4 u |x| and 16 u.
//
// The exact form: y = x P, and the slope is P + x e / sqrt(2 pi), where P is the probability of a
// normal value below x, and e = exp(-x^2 / 2). The error of x^2 is u, that of the CPU's exp 2 u and
// that of P(-|x|) / e 6 u (normal_cpu.hpp), so that of P(-|x|) is P(-|x|) (x^2 / 2 + 9) u. Since
// x^2 / 2 P(-|x|) <= 0.09 and P(-|x|) <= 0.5, and 1 - P(-|x|) is rounded by at most u / 2, P is
// within 5.2 u and y within 6.2 u |x|. The slope's second term is at most 0.25 and has the error
// (x^2 / 2 + 5) u of itself, and x^2 / 2 of it is at most 0.24: with its own rounding the slope,
// which is at most 1.13, is within 8 u. CUDA computes P as 0.5 erfcf(-x / sqrt(2)). The error of
// its argument t is 2 u |t|, and moves P by at most 0.5 u, since |t| exp(-t^2) <= 0.43; erfcf is
// within 4 units of its last place, 4 u of P. y and the slope are within the same bounds.

using GeluForwardKernel = void(ConstValues x, Values y, std::int64_t elems, Stream stream,
                               GELU form);
using GeluBackwardKernel = void(ConstValues x, ConstValues dy, Values dx, std::int64_t elems,
                                Stream stream, GELU form);

namespace reference {
/// The function and its slope at x.
[[nodiscard]] double gelu(double x, GELU form);
[[nodiscard]] double gelu_slope(double x, GELU form);

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
