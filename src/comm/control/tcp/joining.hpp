#pragma once

#include <chrono>
#include <memory>

#include "comm/control/tcp/coordinator.hpp"
#include "comm/control/tcp/frame.hpp"
#include "comm/control/tcp/socket.hpp"

namespace tessera {

/// The rank as which a process joins its job, and the address where the ranks meet.
struct JobPlace {
  int rank = 0;
  JobIdentity job = {};
  HostPort meet = {};  ///< ignored in a job of one
};

/// A rank's connection to the coordinator, once all ranks are here; rank 0 also owns the
/// coordinator.
struct CoordinatorConnection {
  std::unique_ptr<Coordinator> coordinator;
  Socket socket;
  FrameReader in;
};

/// Blocks until all ranks are here. `names` outlives the coordinator. Throws as the constructor of
/// TcpControlPlane does.
[[nodiscard]] CoordinatorConnection join_job(const JobPlace& place, const RankNames& names,
                                             std::chrono::milliseconds patience);

}  // namespace tessera
