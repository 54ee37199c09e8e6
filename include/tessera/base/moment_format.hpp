#pragma once

#include <cstdint>
#include <string_view>

namespace tessera {

/// How an optimizer's moments are kept between updates. Updates compute in fp32 in any case.
enum class MomentFormat : std::uint8_t {
  fp32,
  bf16,
  int8,  ///< 8-bit codes relative to the largest value of their block, and one fp32 scale a block
};

/// Elements in a block of 8-bit moments. A block holds neighbours in one parameter, and its first
/// element is at a multiple of this number.
inline constexpr std::int64_t kMomentBlock = 256;

/// "fp32", "bf16", "int8".
[[nodiscard]] std::string_view to_string(MomentFormat format) noexcept;

/// The inverse of to_string. ConfigError that lists the known names if `name` is not one.
[[nodiscard]] MomentFormat parse_moment_format(std::string_view name);

}  // namespace tessera
