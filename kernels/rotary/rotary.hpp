#pragma once

#include "tessera/kernels/rotary.hpp"

namespace tessera::kernels {

/// The number of rotated values of a head.
[[nodiscard]] constexpr std::int64_t rotated_of(const Rotary& args) noexcept {
  return args.rotated == 0 ? args.head_size : args.rotated;
}
[[nodiscard]] constexpr std::int64_t row_elems_of(const Rotary& args) noexcept {
  return args.row_elems == 0 ? args.heads * args.head_size : args.row_elems;
}
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
