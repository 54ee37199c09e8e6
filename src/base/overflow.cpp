#include "base/overflow.hpp"

#include <fmt/format.h>

#include <cmath>
#include <limits>

namespace tessera {

double least_infinite(DType dtype) noexcept {
  switch (dtype) {
    case DType::fp16:
      return 65'520.0;
    case DType::bf16:
      return 0x1.FFp127;
    case DType::fp32:
      return 0x1.FFFFFFp127;
    case DType::fp64:
      break;
  }
  return std::numeric_limits<double>::infinity();
}

void Overflows::add(std::span<const float> values, DType to, std::int64_t at) noexcept {
  const double least = least_infinite(to);
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!std::isfinite(values[i]) || std::abs(values[i]) < least) { continue; }
    if (count == 0) {
      first = at + static_cast<std::int64_t>(i);
      value = values[i];
    }
    ++count;
  }
}

std::string Overflows::text(DType to) const {
  return fmt::format("{} of its values, the first {} at element {}, {} beyond the range of {}",
                     count, value, first, count == 1 ? "is" : "are", to_string(to));
}

}  // namespace tessera
