#include "tessera/base/moment_format.hpp"

#include <fmt/format.h>

#include "tessera/base/error.hpp"

namespace tessera {

std::string_view to_string(MomentFormat format) noexcept {
  switch (format) {
    case MomentFormat::fp32:
      return "fp32";
    case MomentFormat::bf16:
      return "bf16";
    case MomentFormat::int8:
      break;
  }
  return "int8";
}

MomentFormat parse_moment_format(std::string_view name) {
  for (const MomentFormat format : {MomentFormat::fp32, MomentFormat::bf16, MomentFormat::int8}) {
    if (name == to_string(format)) { return format; }
  }
  throw ConfigError{
      fmt::format("'{}' is not a format of moments; choose fp32, bf16 or int8", name)};
}

}  // namespace tessera
