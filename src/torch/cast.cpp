#include "torch/cast.hpp"

#include <cmath>
#include <cstdint>
#include <limits>
#include <sstream>

namespace tessera::torch {

namespace {

constexpr bool kWithBool = true;

// The values that are not in an integer type.
at::Tensor out_of_integers(const at::Tensor& values, at::ScalarType type) {
  const bool is_unsigned = type == at::kBool || type == at::kByte;
  const int bits = type == at::kBool ? 1 : 8 * static_cast<int>(c10::elementSize(type));
  const int digits = is_unsigned ? bits : bits - 1;
  const std::int64_t most = std::numeric_limits<std::int64_t>::max() >> (63 - digits);
  const std::int64_t least = is_unsigned ? 0 : -most - 1;
  if (c10::isIntegralType(values.scalar_type(), kWithBool)) {
    const at::Tensor whole = values.to(at::kLong);
    return whole.lt(least).logical_or(whole.gt(most));
  }
  // Exact in double: powers of two. NaN equals nothing.
  const at::Tensor wide = values.to(at::kDouble);
  const at::Tensor fits = wide.eq(wide.trunc())
                              .logical_and(wide.ge(static_cast<double>(least)))
                              .logical_and(wide.lt(std::ldexp(1.0, digits)));
  return fits.logical_not();
}

std::string text_of(const at::Tensor& value) {
  std::ostringstream text;
  if (c10::isIntegralType(value.scalar_type(), kWithBool)) {
    text << value.item<std::int64_t>();
  } else {
    text << value.item<double>();
  }
  return text.str();
}

}  // namespace

std::string lost_by_cast(const at::Tensor& values, at::ScalarType type) {
  if (values.scalar_type() == type) { return {}; }
  const bool to_integers = c10::isIntegralType(type, kWithBool);
  const at::Tensor lost =
      to_integers ? out_of_integers(values, type)
                  : values.isfinite().logical_and(values.to(type).isfinite().logical_not());
  const auto count = lost.sum().item<std::int64_t>();
  if (count == 0) { return {}; }
  const auto first = lost.flatten().nonzero()[0].item<std::int64_t>();
  const char* const what =
      to_integers ? (count == 1 ? "is not a whole number in" : "are not whole numbers in")
                  : (count == 1 ? "is beyond" : "are beyond");
  return std::to_string(count) + " of its values, the first " + text_of(values.flatten()[first]) +
         " at element " + std::to_string(first) + ", " + what + " the range of " +
         c10::toString(type);
}

}  // namespace tessera::torch
