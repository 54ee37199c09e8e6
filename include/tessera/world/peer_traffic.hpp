#pragma once

#include <cstddef>
#include <vector>

namespace tessera {

class World;

/// Bytes that this rank's memory has sent to each other rank of the job, by rank, since the run
/// began: who talks to whom, counted where the data moves, in all communicators of the job and what
/// was split from them. Of a rank's own memory to itself nothing counts. It includes every batch
/// whose stream this rank has waited for, and may include parts of later ones. Unlike `sent_bytes`,
/// which is a formula, it shows the way that data really takes: `local` lets every rank reduce a
/// piece, so a `reduce` passes between all ranks before it comes to its root.
///
/// Where it is not counted, by `mpi`, `nccl` and `simulated`, the result is empty.
///
/// Errors:  ContractError unless WorldOptions::trace.
/// Threads: the rank's own.
[[nodiscard]] std::vector<std::size_t> peer_traffic(World& world);

}  // namespace tessera
