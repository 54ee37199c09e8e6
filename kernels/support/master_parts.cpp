#include "kernels/support/master_parts.hpp"

#include "kernels/support/convert.hpp"

namespace tessera::kernels {

// The compiler vectorises these loops.

void store_part(Values to, MasterPart part, const float* from, std::int64_t elems) noexcept {
  if (part == MasterPart::value || to.dtype != DType::bf16) { return narrow(to, from, elems); }
  auto* const __restrict halves = static_cast<std::uint16_t*>(to.data);
  const float* const __restrict masters = from;
  if (part == MasterPart::parameter) {
    for (std::int64_t i = 0; i < elems; ++i) { halves[i] = parameter_bits(masters[i]); }
  } else {
    for (std::int64_t i = 0; i < elems; ++i) { halves[i] = remainder_bits(masters[i]); }
  }
}

void join_masters(float* to, const bfloat16* parameter, const std::uint16_t* remainder,
                  std::int64_t elems) noexcept {
  float* const __restrict masters = to;
  const bfloat16* const __restrict upper = parameter;
  const std::uint16_t* const __restrict lower = remainder;
  for (std::int64_t i = 0; i < elems; ++i) { masters[i] = join_master(upper[i].bits, lower[i]); }
}

}  // namespace tessera::kernels
