#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "comm/control/failure_texts.hpp"
#include "comm/control/tcp/tcp_control_plane.hpp"
#include "comm/mpi/mpi_process.hpp"
#include "comm/mpi/mpi_requests.hpp"

namespace tessera::comm {

/// A rank's wait for messages of a batch that other ranks owe it.
struct MpiWait {
  MpiProcess& process;
  TcpControlPlane& control;
  CallSeries channel;
  std::uint64_t sequence;
  Owed owed;
  std::function<std::string()> called;  ///< the batch's name in errors
  std::function<void()> check = {};     ///< throws if the result is no longer needed

  /// Blocks until `requests` are done, yielding at first and then sleeping: ranks may share cores.
  /// If nothing moves until the deadline, or a rank ends its run without the batch, throws
  /// CommError, sent to all ranks. Throws Aborted if another rank reports, and any exception of
  /// `check`.
  void until_done(MpiRequests& requests) const;
};

}  // namespace tessera::comm
