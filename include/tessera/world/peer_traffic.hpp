#pragma once

#include <cstddef>
#include <vector>

namespace tessera {

class World;

/// Returns, by rank, the bytes that this rank has sent to each rank of the job since the run began.
/// They are counted where the data moves, in all of the job's communicators and those split off
/// them. Copies within a rank's own memory do not count. The result includes every batch whose
/// stream this rank has waited for, and may include parts of later ones. `sent_bytes` is a formula;
/// this function shows the actual path of the data: with `local` every rank reduces a piece, so
/// that a `reduce` moves data between all ranks before it reaches its root.
///
/// Only `local` counts traffic. With `mpi`, `nccl` and `simulated` the result is empty.
///
/// Errors:  ContractError unless WorldOptions::trace is set.
/// Threads: the rank's own thread.
[[nodiscard]] std::vector<std::size_t> peer_traffic(World& world);

}  // namespace tessera
