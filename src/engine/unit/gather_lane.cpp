#include "engine/unit/gather_lane.hpp"

#include <utility>

namespace tessera::engine {

GatherLane::GatherLane(World& world, Journal& journal, Channel channel)
    : world_{world},
      journal_{journal},
      channel_{channel},
      compute_mark_{world.device().make_event()},
      gather_mark_{world.device().make_event()} {}

void GatherLane::order_after_compute() {
  world_.compute_stream().record(compute_mark_.get());
  channel_.stream.wait_for(compute_mark_.get());
}

void GatherLane::settle() {
  channel_.stream.record(gather_mark_.get());
  world_.compute_stream().wait_for(gather_mark_.get());
}

void GatherLane::submit(const char* verb, const std::string& unit, Batch batch) {
  journal_.issue(verb, unit);
  channel_.communicator.submit(std::move(batch), channel_.stream);
}

}  // namespace tessera::engine
