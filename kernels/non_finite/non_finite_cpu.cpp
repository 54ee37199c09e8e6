#include <algorithm>
#include <cstdint>
#include <cstring>

#include "device/cpu/host_task.hpp"
#include "kernels/non_finite/non_finite.hpp"

namespace tessera::kernels::cpu {
namespace {

/// Infinities and NaNs are the values whose exponent bits are all set. The search goes block by
/// block: a loop without branches, left soon after a hit.
template <class Bits>
bool any_with_exponent(const void* x, std::int64_t elems, Bits exponent) {
  constexpr std::int64_t block = 1024;
  const auto* const values = static_cast<const std::byte*>(x);
  for (std::int64_t first = 0; first < elems; first += block) {
    const std::int64_t last = std::min(first + block, elems);
    bool found = false;
    for (std::int64_t i = first; i < last; ++i) {
      Bits bits;
      std::memcpy(&bits, values + static_cast<std::size_t>(i) * sizeof bits, sizeof bits);
      found |= (bits & exponent) == exponent;
    }
    if (found) { return true; }
  }
  return false;
}

bool any_non_finite(ConstView x) {
  switch (x.dtype) {
    case DType::bf16:
      return any_with_exponent<std::uint16_t>(x.data, x.elems, 0x7F80U);
    case DType::fp16:
      return any_with_exponent<std::uint16_t>(x.data, x.elems, 0x7C00U);
    case DType::fp64:
      return any_with_exponent<std::uint64_t>(x.data, x.elems, 0x7FF0'0000'0000'0000U);
    case DType::fp32:
      break;
  }
  return any_with_exponent<std::uint32_t>(x.data, x.elems, 0x7F80'0000U);
}

}  // namespace

void find_non_finite(ConstView x, double place, double* found, Stream stream) {
  device::enqueue(stream, [=] {
    if (*found == 0.0 && any_non_finite(x)) { *found = place; }
  });
}

}  // namespace tessera::kernels::cpu
