#include "tessera/engine/checks.hpp"

namespace tessera {

std::string_view to_string(Checks checks) noexcept {
  switch (checks) {
    case Checks::off:
      return "off";
    case Checks::strict:
      return "strict";
    case Checks::memory:
      return "memory";
  }
  return "unknown";
}

}  // namespace tessera
