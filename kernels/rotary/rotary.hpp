#pragma once

#include "kernels/support/host_device.hpp"
#include "tessera/kernels/rotary.hpp"

namespace tessera::kernels {

/// The number of rotated values of a head.
[[nodiscard]] constexpr std::int64_t rotated_of(const Rotary& args) noexcept {
  return args.rotated == 0 ? args.head_size : args.rotated;
}
[[nodiscard]] constexpr std::int64_t row_elems_of(const Rotary& args) noexcept {
  return args.row_elems == 0 ? args.heads * args.head_size : args.row_elems;
}
/// The position of token `t` of a sample. `row` counts the tokens of all samples before it.
TESSERA_HOST_DEVICE constexpr std::int64_t position_of(const std::int32_t* first_key,
                                                       std::int64_t row, std::int64_t t) noexcept {
  if (first_key == nullptr) { return t; }
  const std::int64_t first = first_key[row];
  return first < 0 ? t : first > t ? 0 : t - first;
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
