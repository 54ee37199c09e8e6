#include "tessera/engine/keep_whole.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tessera/base/bytes.hpp"

namespace tessera {

std::string_view to_string(KeepWhole keep) noexcept {
  switch (keep) {
    case KeepWhole::never:
      return "never";
    case KeepWhole::where_smaller:
      return "where-smaller";
    case KeepWhole::automatic:
      break;
  }
  return "automatic";
}

std::string describe(const WholeUnits& whole) {
  const bool one = whole.units.size() == 1;
  const bool parameters = whole.what == StateTensor::parameters;
  return fmt::format("{}unit{} {} {} kept whole: {} whole, {} {}",
                     parameters ? "" : "the gradients of ", one ? "" : "s",
                     fmt::join(whole.units, ", "), one && parameters ? "is" : "are",
                     format_bytes(whole.whole_bytes), format_bytes(whole.sharded_bytes),
                     parameters ? "sharded and gathered" : "in slots and sharded");
}

}  // namespace tessera
