#pragma once

#include <functional>

#include "tessera/world/world.hpp"

namespace tessera {

/// Runs `body` as `ranks` ranks, each a thread of this process, and returns when all have finished.
///
/// Errors:  if a rank throws, the others are told and leave with CommError. The first error in time
///          that does not merely repeat another rank's is thrown here, its text preceded by "rank
///          r: ". It keeps its type if that is one of the library's; std::bad_alloc becomes
///          OutOfMemory, and anything else Error. Other causes follow in the text, three at most.
///          Ranks that fail with the same text count as the lowest of them. An aborted job is an
///          error even if no body throws. ConfigError unless 1 <= ranks <= 1024 and the options are
///          valid.
/// Memory:  a rank that throws destroys its buffers while peers may still read them. Owners of
///          communicated buffers call World::quiesce first, as ShardedModel does.
void run_ranks(int ranks, const std::function<void(World&)>& body,
               const WorldOptions& options = {});

/// Runs `body` on the calling thread as this process's rank of the job that mpirun, srun or
/// torchrun has started (launched_job), and returns when all ranks have finished. Without a job it
/// runs alone, as the only rank. MPI joins processes with CPUs, and NCCL joins those with CUDA
/// devices (docs/nccl.md).
///
/// Errors:  without a job, what `body` throws is thrown as it is. In a job the others are told and
///          leave, and the error is thrown as by run_ranks: at once on the (lowest) rank that
///          failed, and on the others as CommError some seconds later if their processes still run
///          then. The caller reports it and exits: whatever status the process exits with becomes
///          the job's, and ends it. No further run is possible then. A process that exits with
///          status 0 waits for the others until the deadline (with NCCL, no process waits for
///          others once its run has ended). ConfigError if the environment names a job that this
///          build cannot join (no MPI or CUDA module; torchrun, on CPUs), or does not say where
///          ranks meet.
/// Threads: all runs of a job are made on one thread. MPI starts at the first run and ends with the
///          process.
void run(const std::function<void(World&)>& body, const WorldOptions& options = {});

}  // namespace tessera
