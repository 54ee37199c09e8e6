#pragma once

#include <bit>
#include <cstdint>

namespace tessera::kernels {

/// The bits of `value` rounded to bf16 by a random word, as StochasticKey defines.
///
/// The lowest 16 bits are the fraction of the gap; adding 65535 - r carries exactly if r is less.
[[nodiscard]] constexpr std::uint16_t round_bf16(float value, std::uint32_t word) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
  const std::uint32_t rounded = (bits + (~word >> 16U)) >> 16U;
  const std::uint32_t special = (bits >> 16U) | (magnitude > 0x7F800000U ? 0x40U : 0U);
  return static_cast<std::uint16_t>(magnitude >= 0x7F800000U ? special : rounded);
}

/// Rounds to fp16.
[[nodiscard]] constexpr std::uint16_t round_fp16(float value, std::uint32_t word) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
  const std::uint32_t sign = (bits >> 16U) & 0x8000U;
  constexpr std::uint32_t first_normal = 0x38800000;    // 2^-14
  constexpr std::uint32_t first_infinity = 0x47800000;  // 2^16
  constexpr std::uint32_t exponent_gap = 112U << 23U;   // the biases: 127 - 15
  if (magnitude > 0x7F800000U) {                        // NaN: made quiet, payload's top bits kept
    return static_cast<std::uint16_t>(sign | 0x7E00U | ((magnitude >> 13U) & 0x1FFU));
  }
  if (magnitude >= first_infinity) { return static_cast<std::uint16_t>(sign | 0x7C00U); }
  if (magnitude >= first_normal) {
    const std::uint32_t rounded = (magnitude - exponent_gap + (~word >> 19U)) >> 13U;
    return static_cast<std::uint16_t>(sign | rounded);
  }
  // Subnormal: a count of 2^-24, below 1024. Its whole part and the rest are exact.
  const float count = std::bit_cast<float>(magnitude) * 0x1p24F;
  const auto whole = static_cast<std::uint32_t>(count);
  const double part = static_cast<double>(count) - whole;
  const bool up = static_cast<double>(word) * 0x1p-32 < part;
  return static_cast<std::uint16_t>(sign | (whole + (up ? 1U : 0U)));
}

}  // namespace tessera::kernels
