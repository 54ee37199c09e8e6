#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "comm/control/tcp/coordinator.hpp"
#include "comm/control/tcp/frame.hpp"
#include "comm/control/tcp/socket.hpp"

namespace tessera::comm {

/// The rank as which a process joins its job, and the address where the ranks meet. Any launcher
/// will do, if it tells the processes this much.
struct JobPlace {
  int rank = 0;
  JobIdentity job = {};
  HostPort meet = {};                 ///< ignored in a job of one
  std::vector<HostPort> others = {};  ///< further addresses of the same listener, tried in turn
};

/// A rank's connection to the coordinator, once all ranks are here; rank 0 also owns the
/// coordinator.
struct CoordinatorConnection {
  std::unique_ptr<Coordinator> coordinator;
  Socket socket;
  FrameReader in;
  HostPort at = {};  ///< where the coordinator answered
};

/// Blocks until all ranks are here. On rank 0, `listener` accepts them; if it is empty, rank 0
/// listens at `place.meet`. `names` outlives the coordinator. Throws as the constructor of
/// TcpControlPlane does.
[[nodiscard]] CoordinatorConnection join_job(const JobPlace& place, Socket listener,
                                             const RankNames& names,
                                             std::chrono::milliseconds patience);

}  // namespace tessera::comm
