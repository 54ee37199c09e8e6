#pragma once

#include <concepts>
#include <utility>

#include "tessera/base/error.hpp"

namespace tessera {

/// Returns the smallest multiple of `unit` (> 0) that is at least `value` (>= 0).
template <std::integral T>
[[nodiscard]] constexpr T round_up(T value, T unit) noexcept {
  return (value + unit - 1) / unit * unit;
}

/// Returns ceil(a / b) for a >= 0, b > 0.
template <std::integral T>
[[nodiscard]] constexpr T ceil_div(T a, T b) noexcept {
  return (a + b - 1) / b;
}

/// Converts between integral types without changing the value. Throws ContractError with the call
/// site if `To` cannot hold it.
template <std::integral To, std::integral From>
[[nodiscard]] constexpr To narrow(From value, CallSite where = CallSite::here()) {
  expects(std::in_range<To>(value), "number out of range", where);
  return static_cast<To>(value);
}

}  // namespace tessera
