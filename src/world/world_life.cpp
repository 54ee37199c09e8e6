#include "world/world_life.hpp"

#include <fmt/format.h>

#include "tessera/base/error.hpp"
#include "world/world_state.hpp"

namespace tessera::world {

WorldGuest::WorldGuest(World& world)
    : device_{world.device().weak_from_this().lock()}, life_{WorldAccess::state(world).life} {}

void WorldGuest::require_world(const char* what) const {
  if (!life_->ended) { return; }
  throw ContractError{
      fmt::format("{} is used after its World has ended, with the rank's streams and "
                  "communicators: use it, and end it, within the rank's body",
                  what)};
}

}  // namespace tessera::world
