#include <cmath>

#include "kernels/update/stochastic.hpp"
#include "tessera/base/half.hpp"

namespace tessera::kernels::reference {
namespace {

/// The neighbour of `value` towards zero, and the next one away from it, found from their bits.
template <class Half>
Half round(float value, std::uint32_t word) {
  Half down = Half::from_float(value);
  if (!std::isfinite(value)) { return down; }
  if (std::abs(down.to_float()) > std::abs(value)) { --down.bits; }
  const Half up{static_cast<std::uint16_t>(down.bits + 1U)};
  // The gap above the largest finite value is as wide as the one below it.
  const Half below{static_cast<std::uint16_t>(down.bits - 1U)};
  const double from = std::abs(static_cast<double>(down.to_float()));
  const double gap = std::isfinite(up.to_float())
                         ? std::abs(static_cast<double>(up.to_float())) - from
                         : from - std::abs(static_cast<double>(below.to_float()));
  const double part = (std::abs(static_cast<double>(value)) - from) / gap;
  return static_cast<double>(word) * 0x1p-32 < part ? up : down;
}

}  // namespace

void narrow_stochastic(Values to, const float* from, std::int64_t elems, const StochasticKey& key,
                       std::int64_t first) {
  for (std::int64_t i = 0; i < elems; ++i) {
    const std::uint32_t word = key.word(first + i);
    if (to.dtype == DType::bf16) {
      to.as<bfloat16>()[i] = round<bfloat16>(from[i], word);
    } else {
      to.as<float16>()[i] = round<float16>(from[i], word);
    }
  }
}

}  // namespace tessera::kernels::reference
