#pragma once

#include <bit>
#include <cstdint>

#include "kernels/support/host_device.hpp"
#include "tessera/base/values.hpp"

// A trained bf16 parameter is its fp32 master weight rounded to nearest, ties away from zero: the
// upper half of master + 0x8000, so that bit 15 of the lower half is the carry. The parameter and
// the lower half therefore determine the master (decision 12); with ties to even they would not.
namespace tessera::kernels {

/// The bits of the bf16 parameter. A master half a step or more above the largest finite value
/// gives an infinity. A NaN stays a NaN: it is made quiet and keeps its upper half.
TESSERA_HOST_DEVICE constexpr std::uint16_t parameter_bits(float master) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(master);
  const bool nan = (bits & 0x7FFFFFFFU) > 0x7F800000U;
  return static_cast<std::uint16_t>((nan ? bits | 0x400000U : bits + 0x8000U) >> 16U);
}

/// The lower half of a master.
TESSERA_HOST_DEVICE constexpr std::uint16_t remainder_bits(float master) noexcept {
  return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(master));
}

/// join_master(parameter_bits(w), remainder_bits(w)) is w to the bit; a NaN is made quiet.
TESSERA_HOST_DEVICE constexpr float join_master(std::uint16_t parameter,
                                                std::uint16_t remainder) noexcept {
  const bool nan = (parameter & 0x7FFFU) > 0x7F80U;
  const std::uint32_t carry = nan ? 0U : std::uint32_t{remainder} >> 15U;
  return std::bit_cast<float>((parameter - carry) << 16U | remainder);
}

/// What an array holds of fp32 weights.
enum class MasterPart : std::uint8_t {
  value,      ///< the weights in the array's dtype, rounded to nearest, ties to even
  parameter,  ///< what kernels compute with: as `value`, but bf16 by parameter_bits
  remainder,  ///< remainder_bits; the array's dtype is bf16 only for its size
};

/// to[i] = this part of from[i]. No overlap. Runs at once.
void store_part(Values to, MasterPart part, const float* from, std::int64_t elems) noexcept;

/// to[i] = join_master(parameter[i], remainder[i]). No overlap. Runs at once.
void join_masters(float* to, const bfloat16* parameter, const std::uint16_t* remainder,
                  std::int64_t elems) noexcept;

}  // namespace tessera::kernels
