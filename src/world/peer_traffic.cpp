#include "tessera/world/peer_traffic.hpp"

#include "comm/counts_traffic.hpp"
#include "tessera/base/error.hpp"
#include "tessera/world/world.hpp"

namespace tessera {

std::vector<std::size_t> peer_traffic(World& world) {
  expects(world.options().trace,
          "peer_traffic: nothing is counted without WorldOptions::trace; set it");
  const auto* counts =
      dynamic_cast<const comm::CountsTraffic*>(&world.gather_channel().communicator);
  return counts == nullptr ? std::vector<std::size_t>{} : counts->sent_to_each();
}

}  // namespace tessera
