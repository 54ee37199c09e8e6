#pragma once

#include <cstdint>
#include <string_view>

namespace tessera {

/// How an optimizer's moments are kept between updates. Updates compute in fp32 in any case.
enum class MomentFormat : std::uint8_t {
  fp32,
  bf16,
  int8,  ///< codes of 8 bits relative to the largest of their block, and one fp32 unit a block
};

/// Elements of a block of 8-bit moments: neighbours in one parameter, the first at a multiple of
/// this.
inline constexpr std::int64_t kMomentBlock = 256;

/// "fp32", "bf16", "int8".
[[nodiscard]] std::string_view to_string(MomentFormat format) noexcept;

/// The inverse of to_string. ConfigError that lists the known names if `name` is not one.
[[nodiscard]] MomentFormat parse_moment_format(std::string_view name);

}  // namespace tessera
