#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "comm/control/tcp/tcp_control_plane.hpp"
#include "comm/instruments.hpp"
#include "comm/mpi/mpi_mover.hpp"
#include "comm/mpi/mpi_tags.hpp"
#include "comm/mpi/mpi_workspace.hpp"

namespace tessera::comm {

/// One of MPI's communicators of all ranks, and what a rank's channels over it share: the channel
/// of all ranks and those split from it. Tags separate their messages; no MPI communicator is made
/// for them, so nothing blocks within MPI.
struct MpiLine {
  MpiLine(MpiProcess& process_, MpiKind kind_, Device& device, MemoryTracker& memory);

  MpiProcess& process;
  MpiKind kind;
  MPI_Comm comm;
  MpiWorkspaces workspaces;
  int next_channel = 1;  ///< the lowest number that this rank has not seen used
};

/// What a communicator's batches share.
struct MpiChannel {
  std::shared_ptr<TcpControlPlane> control;
  std::shared_ptr<MpiLine> line;
  int number;                ///< among the line's channels
  std::uint64_t group;       ///< the number of its ranks' group in the job
  std::string name;          ///< the channel's name in errors
  std::vector<int> members;  ///< job ranks, by rank of the channel
  int rank;                  ///< rank within the channel
  Instruments instruments;
  std::atomic<std::uint64_t> withdrawn = 0;  ///< the end of this rank's withdrawn batches

  [[nodiscard]] int size() const noexcept { return static_cast<int>(members.size()); }
  [[nodiscard]] CallSeries batches() const noexcept;
  [[nodiscard]] CallSeries texts() const noexcept;
  [[nodiscard]] MpiRoute route(std::uint64_t sequence) const noexcept;
};

}  // namespace tessera::comm
