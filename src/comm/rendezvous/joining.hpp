#pragma once

#include <chrono>
#include <memory>

#include "comm/rendezvous/frame.hpp"
#include "comm/rendezvous/hub.hpp"
#include "comm/rendezvous/socket.hpp"

namespace tessera {

/// Where and as what a process joins its job.
struct JobPlace {
  int rank = 0;
  JobIdentity job = {};
  HostPort meet = {};  ///< not looked at in a job of one
};

/// A rank's connection with the hub, once all ranks are here; rank 0 has the hub itself.
struct HubConnection {
  std::unique_ptr<Hub> hub;
  Socket socket;
  FrameReader in;
};

/// Blocks until all ranks are here. Errors as JobGroup's.
[[nodiscard]] HubConnection join_job(const JobPlace& place, std::chrono::milliseconds patience);

}  // namespace tessera
