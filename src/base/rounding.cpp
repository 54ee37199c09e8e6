#include "tessera/base/rounding.hpp"

#include <fmt/format.h>

#include "tessera/base/error.hpp"

namespace tessera {

std::string_view to_string(Rounding rounding) noexcept {
  return rounding == Rounding::nearest ? "nearest" : "stochastic";
}

Rounding parse_rounding(std::string_view name) {
  for (const Rounding rounding : {Rounding::nearest, Rounding::stochastic}) {
    if (name == to_string(rounding)) { return rounding; }
  }
  throw ConfigError{fmt::format("unknown rounding \"{}\"; known are nearest, stochastic", name)};
}

}  // namespace tessera
