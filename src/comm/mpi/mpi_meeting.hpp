#pragma once

#include <chrono>

#include "comm/control/tcp/joining.hpp"
#include "comm/control/tcp/socket.hpp"
#include "comm/mpi/mpi_process.hpp"

namespace tessera {

/// Where the ranks meet, and rank 0's listener there.
struct MpiMeeting {
  JobPlace place = {};  ///< without the build
  Socket listener = {};
};

/// *Collective.* How the processes of an MPI job meet over TCP: rank 0 listens, and sends the
/// others its addresses and a secret of this run's. It listens on the loopback if one machine has
/// all ranks, else on all its addresses; rank 0's `choice` sets another host if it names one, and
/// the port if it is not 0. Blocks until every rank has the addresses. Throws ConfigError, on all
/// ranks, if rank 0 cannot listen; CommError if ranks do not come within `patience`, naming them on
/// rank 0.
[[nodiscard]] MpiMeeting meet_over_mpi(MpiProcess& process, const HostPort& choice,
                                       std::chrono::milliseconds patience);

}  // namespace tessera
