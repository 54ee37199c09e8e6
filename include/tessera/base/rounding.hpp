#pragma once

#include <cstdint>
#include <string_view>

namespace tessera {

/// How an fp32 value is rounded to 16 bits.
enum class Rounding : std::uint8_t {
  nearest,     ///< to the nearest 16-bit value; ties go to even, or away from zero for trained bf16
               ///< parameters (MasterWeights)
  stochastic,  ///< up or down at random, more often to the nearer value, so that the mean is exact:
               ///< updates below half a step of the 16-bit value have an effect on average
};

/// Returns "nearest" or "stochastic".
[[nodiscard]] std::string_view to_string(Rounding rounding) noexcept;

/// The inverse of to_string. Throws ConfigError that lists the known names if `name` is not one.
[[nodiscard]] Rounding parse_rounding(std::string_view name);

}  // namespace tessera
