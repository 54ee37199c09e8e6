#pragma once

#include <functional>

#include "tessera/world/world.hpp"

namespace tessera {

/// Runs `body` as `ranks` ranks, threads of this process, and returns when all have finished.
///
/// Errors:  if a rank throws, the others are told and leave with CommError; the first cause (not
///          the echoes) is thrown here, its text preceded by "rank r: ": the same type where it is
///          one of the library's, OutOfMemory for std::bad_alloc, else Error. Of several causes the
///          first in time is told, then the others; ranks that fail with one text count as the
///          lowest of them. An aborted job is an error even if no body throws. ConfigError unless
///          1 <= ranks <= 1024 and the options make sense.
/// Memory:  a rank that throws ends its buffers' lives while peers may be reading them: owners of
///          communicated buffers call World::quiesce first (ShardedModel does).
void run_ranks(int ranks, const std::function<void(World&)>& body,
               const WorldOptions& options = {});

/// Runs `body` as this process's rank of the job that mpirun, srun or torchrun has started
/// (launched_job), and returns when all ranks have finished; without a job alone, as the only rank.
/// On the calling thread. Processes with CPUs are joined by MPI, those with CUDA devices by NCCL
/// (docs/nccl.md).
///
/// Errors:  alone, what `body` throws comes out as it is. In a job the others are told and leave,
///          and it comes out as from run_ranks, at once on the (lowest) rank that failed, else as
///          CommError some seconds later if their processes still run then. The caller reports it
///          and leaves: whatever status the process exits with becomes the job's, and ends it. No
///          further run is possible then. A process that leaves with status 0 waits for the others,
///          until the deadline (with NCCL, no process waits for others once its run has ended).
///          ConfigError if the environment names a job that this build cannot join (no MPI or CUDA
///          module; torchrun, on CPUs), or does not say where ranks meet.
/// Threads: a job's runs all on one thread; MPI starts at the first and ends with the process.
void run(const std::function<void(World&)>& body, const WorldOptions& options = {});

}  // namespace tessera
