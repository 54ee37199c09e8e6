#pragma once

#include <chrono>
#include <functional>

#include "comm/control/tcp/joining.hpp"
#include "comm/control/tcp/socket.hpp"
#include "comm/mpi/mpi_process.hpp"

namespace tessera::comm {

/// Where the ranks meet, and rank 0's listener there.
struct MpiMeeting {
  JobPlace place = {};  ///< without the build
  Socket listener = {};
};

/// Returns the user's choice of rank 0's host and port: empty and 0 if there is none.
using ChooseMeeting = std::function<HostPort()>;

/// *Collective.* How the processes of an MPI job meet over TCP: rank 0 listens, and sends the
/// others its addresses and a secret made for this run. It listens on the loopback if one machine
/// has all ranks, else on all its addresses. `choose` is called on rank 0 only, and not in a job of
/// one; what it throws becomes a ConfigError on all ranks. Blocks until every rank has the
/// addresses. Throws ConfigError, on all ranks, if rank 0 cannot listen or does not know the host
/// chosen; CommError if ranks do not come within `patience`, naming them on rank 0.
[[nodiscard]] MpiMeeting meet_over_mpi(MpiProcess& process, const ChooseMeeting& choose,
                                       std::chrono::milliseconds patience);

}  // namespace tessera::comm
