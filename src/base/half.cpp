#include "tessera/base/half.hpp"

#include <bit>

namespace tessera {
namespace {

constexpr std::uint32_t kInfinity32 = 0x7F800000;

// `bits` without its lowest `shift` bits, rounded to nearest, ties to even. A carry out of the
// mantissa raises the exponent, which is what rounding up to a power of two means.
constexpr std::uint32_t round_off(std::uint32_t bits, unsigned shift) {
  const std::uint32_t odd = (bits >> shift) & 1U;
  return (bits + (1U << (shift - 1)) - 1U + odd) >> shift;
}

constexpr std::uint16_t half_magnitude(std::uint32_t magnitude) {
  constexpr std::uint32_t first_overflow = 0x477FF000;  // 65520, the tie above the largest half
  constexpr std::uint32_t first_normal = 0x38800000;    // 2^-14
  constexpr std::uint32_t exponent_gap = 112U << 23;    // the biases: 127 - 15
  if (magnitude > kInfinity32) {  // NaN: made quiet, the payload's top bits kept
    return static_cast<std::uint16_t>(0x7E00U | ((magnitude >> 13) & 0x1FFU));
  }
  if (magnitude >= first_overflow) { return 0x7C00; }
  if (magnitude >= first_normal) {
    return static_cast<std::uint16_t>(round_off(magnitude - exponent_gap, 13));
  }
  // Subnormal: a count of 2^-24. The float is mantissa * 2^(exponent - 150).
  const std::uint32_t exponent = magnitude >> 23;
  if (exponent < 102) { return 0; }  // below 2^-25
  const std::uint32_t mantissa = (magnitude & 0x7FFFFFU) | 0x800000U;
  return static_cast<std::uint16_t>(round_off(mantissa, 126 - exponent));
}

}  // namespace

bfloat16 bfloat16::from_float(float value) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7FFFFFFFU) > kInfinity32) {
    return {static_cast<std::uint16_t>((bits >> 16) | 0x40U)};  // NaN: quiet
  }
  return {static_cast<std::uint16_t>(round_off(bits, 16))};
}

float bfloat16::to_float() const noexcept {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

float16 float16::from_float(float value) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000U;
  return {static_cast<std::uint16_t>(sign | half_magnitude(bits & 0x7FFFFFFFU))};
}

float float16::to_float() const noexcept {
  const std::uint32_t sign = (bits & 0x8000U) << 16;
  const std::uint32_t exponent = (bits >> 10) & 0x1FU;
  const std::uint32_t mantissa = bits & 0x3FFU;
  if (exponent == 0) {  // zero or subnormal: a count of 2^-24, exact in float
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24F;
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(magnitude) | sign);
  }
  const std::uint32_t wide = exponent == 0x1F ? 0xFFU : exponent + 112;
  return std::bit_cast<float>(sign | (wide << 23) | (mantissa << 13));
}

}  // namespace tessera
