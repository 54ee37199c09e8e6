#include "comm/launcher.hpp"
#include "comm/local/local_group.hpp"
#include "comm/world_state.hpp"
#include "tessera/comm/world.hpp"

namespace tessera {

void run(const std::function<void(World&)>& body, const WorldOptions& options) {
  check(options);
  refuse_launched_job();
  World world = WorldFactory::make_local(WorldFactory::make_local_group(1, options), 0, options);
  body(world);
  WorldFactory::finish(world);
}

}  // namespace tessera
