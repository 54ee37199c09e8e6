#include "tessera/world/machines.hpp"

#include "base/machine.hpp"
#include "tessera/world/world.hpp"

namespace tessera {

std::vector<std::string> machines_of_ranks(World& world) {
  return world.exchange(machine_id());
}

}  // namespace tessera
