#pragma once

#include <charconv>
#include <string>
#include <string_view>
#include <system_error>

#include "tessera/base/error.hpp"

/// Returns the program's only argument, a number from `low` to `high`, or `fallback` without one.
/// ConfigError for anything else.
inline int only_argument(int argc, char** argv, int low, int high, int fallback) {
  if (argc < 2) { return fallback; }
  const std::string_view text = argv[1];
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool number = error == std::errc{} && end == text.data() + text.size();
  if (argc > 2 || !number || value < low || value > high) {
    throw tessera::ConfigError{"give one number of ranks, from " + std::to_string(low) + " to " +
                               std::to_string(high)};
  }
  return value;
}
