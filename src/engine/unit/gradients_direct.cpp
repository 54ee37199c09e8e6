#include "engine/unit/gradients_direct.hpp"

namespace tessera::engine {

bool DirectGradients::make_room() {
  const bool first = !started();
  start();
  return first;
}

void DirectGradients::keep_on_host() {
  host()->keep(
      lane().stream(), [this](std::size_t segment) { return updated(segment); },
      /*first=*/true);
  host()->complete();
}

}  // namespace tessera::engine
