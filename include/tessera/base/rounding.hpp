#pragma once

#include <cstdint>
#include <string_view>

namespace tessera {

/// How an fp32 value becomes one of fewer bits.
enum class Rounding : std::uint8_t {
  nearest,     ///< to the nearer neighbour; ties go to even, or away from zero for trained bf16
               ///< parameters (MasterWeights)
  stochastic,  ///< to either neighbour, more often to the nearer one, so that the mean is the
               ///< value: small updates of a 16-bit value are not lost but come through now and
               ///< then
};

/// "nearest", "stochastic".
[[nodiscard]] std::string_view to_string(Rounding rounding) noexcept;

/// The inverse of to_string. ConfigError that lists the known names if `name` is not one.
[[nodiscard]] Rounding parse_rounding(std::string_view name);

}  // namespace tessera
