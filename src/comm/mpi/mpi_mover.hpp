#pragma once

#include <cstddef>
#include <span>

#include "comm/mpi/mpi_wait.hpp"
#include "comm/mpi/mpi_workspace.hpp"
#include "tessera/comm/batch.hpp"

namespace tessera::comm {

/// The route of a batch's messages: over `comm` with `tag`, between `members`; this rank is the
/// `rank`-th of them.
struct MpiRoute {
  MPI_Comm comm;
  int tag;
  std::span<const int> members;
  int rank;
};

/// Moves the data of one batch, whose calls were found to agree, between processes. Data goes
/// straight from the sender's buffer to the receiver's; data to be added goes through scratch
/// memory in blocks, and while one block is added the next is in transit.
///
/// A message is never longer than a few MiB, and between two ranks all messages follow the order of
/// the batch's entries, so one tag suffices.
class MpiMover {
 public:
  MpiMover(MpiWorkspace& workspace, const MpiRoute& route, const MpiWait& wait);

  void run(const Batch& batch);

 private:
  using Workspace = MpiWorkspace;

  void move(const AllGather& op);
  void move(const ReduceScatter& op);
  void move(const AllReduce& op);
  void move(const Broadcast& op);
  void move(const Reduce& op);
  void move(const Gather& op);

  // Peers are numbered as in the batch, among the route's members.
  void send_to(int peer, ConstView data);
  void receive_from(int peer, View data);
  void add_from(int peer, ConstView like);
  /// Moves what the three functions above have listed.
  void transfer();
  /// The same as `transfer`; `target` becomes the reduction of `own` with what `add_from` has
  /// listed.
  void transfer_and_add(View target, ConstView own, ReduceOp op);
  template <class AfterStep>
  void steps(std::size_t step_bytes, const AfterStep& after_step);
  void post(std::size_t step, std::size_t step_bytes);
  [[nodiscard]] std::byte* scratch(std::size_t step, std::size_t in) const noexcept;
  template <class Do>
  void for_each_peer(const Do& act) const;

  MpiWorkspace& work_;
  const MpiRoute route_;
  const MpiWait& wait_;
  const int rank_;
  const int ranks_;
  const std::size_t block_bytes_;
};

}  // namespace tessera::comm
