#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::tools {

/// Parses an integer in [least, most]. ConfigError otherwise, with what is allowed.
[[nodiscard]] std::int64_t parse_whole(
    std::string_view text, std::int64_t least,
    std::int64_t most = std::numeric_limits<std::int64_t>::max());

/// Parses an integer in [1, most], which may be written with a fraction and an exponent: "7.5e9".
/// ConfigError otherwise.
[[nodiscard]] std::int64_t parse_count(std::string_view text, std::int64_t most);

/// A range of numbers; its bounds say whether they belong to it.
struct NumberRange {
  double least = 0;
  bool least_allowed = true;
  double below = std::numeric_limits<double>::infinity();  ///< exclusive
  double most = std::numeric_limits<float>::max();         ///< inclusive
};

/// Parses a finite number in `range`, rounded to fp32. ConfigError otherwise, and also if the
/// rounded value is outside the range, or is 0 though the number is not.
[[nodiscard]] float parse_number(std::string_view text, const NumberRange& range);

/// `text` split at commas. ConfigError if an entry is empty.
[[nodiscard]] std::vector<std::string> parse_list(std::string_view text);

/// The first option that occurs more than once in `arguments`, such as "--steps"; empty if none
/// does.
[[nodiscard]] std::string repeated_option(std::span<const char* const> arguments);

/// The entry of `known` that `text` was probably meant to be; empty if none is close.
[[nodiscard]] std::string nearest(std::string_view text, const std::vector<std::string>& known);

}  // namespace tessera::tools
