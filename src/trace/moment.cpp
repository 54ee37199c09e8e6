#include "tessera/trace/moment.hpp"

namespace tessera::trace {

std::string_view to_string(Phase phase) noexcept {
  switch (phase) {
    case Phase::setup:
      return "setup";
    case Phase::forward:
      return "forward";
    case Phase::backward:
      return "backward";
    case Phase::update:
      return "update";
    case Phase::evaluation:
      return "evaluation";
  }
  return "unknown";
}

}  // namespace tessera::trace
