#pragma once

#include <cstdint>
#include <string_view>

namespace tessera {

/// Storage format of an optimizer's moments between updates. Updates always compute in fp32.
enum class MomentFormat : std::uint8_t {
  fp32,  ///< 4 bytes an element
  bf16,  ///< 2 bytes an element
  int8,  ///< 8-bit codes relative to the largest value of their block, and one fp32 scale a block
};

/// Elements in a block of 8-bit moments. A block holds neighbouring elements of one parameter and
/// starts at a multiple of this number.
inline constexpr std::int64_t kMomentBlock = 256;

/// Returns "fp32", "bf16" or "int8".
[[nodiscard]] std::string_view to_string(MomentFormat format) noexcept;

/// The inverse of to_string. Throws ConfigError that lists the known names if `name` is not one.
[[nodiscard]] MomentFormat parse_moment_format(std::string_view name);

}  // namespace tessera
