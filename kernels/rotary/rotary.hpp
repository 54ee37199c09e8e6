#pragma once

#include "tessera/kernels/rotary.hpp"

namespace tessera::kernels {

using RotaryKernel = void(const Rotary& args, Stream stream);

namespace reference {
RotaryKernel rotary_forward;
RotaryKernel rotary_backward;
}  // namespace reference
namespace cpu {
RotaryKernel rotary_forward;
RotaryKernel rotary_backward;
}  // namespace cpu
namespace cuda {
RotaryKernel rotary_forward;
RotaryKernel rotary_backward;
}  // namespace cuda

}  // namespace tessera::kernels
