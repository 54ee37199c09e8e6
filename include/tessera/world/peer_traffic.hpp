#pragma once

#include <cstddef>
#include <vector>

namespace tessera {

class World;

/// Returns how many bytes this rank's memory has sent to each rank of the job since the run began,
/// by rank. They are counted where the data moves, in all of the job's communicators and those
/// split off them. What a rank moves within its own memory does not count. The result includes
/// every batch whose stream this rank has waited for, and may include parts of later ones. Unlike
/// `sent_bytes`, which is a formula, it shows the way that the data takes: with `local` every rank
/// reduces a piece, so that a `reduce` passes between all ranks before it reaches its root.
///
/// Only `local` counts traffic. With `mpi`, `nccl` and `simulated` the result is empty.
///
/// Errors:  ContractError unless WorldOptions::trace is set.
/// Threads: the rank's own thread.
[[nodiscard]] std::vector<std::size_t> peer_traffic(World& world);

}  // namespace tessera
