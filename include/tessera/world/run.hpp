#pragma once

#include <functional>

#include "tessera/world/world.hpp"

namespace tessera {

/// Runs `body` as `ranks` ranks, each a thread of this process, and returns when all have finished.
///
/// Errors:  if a rank throws, the others are told and leave with CommError. The call then throws
///          the first error that does not merely repeat another rank's, with "rank r: " before its
///          text. Errors of the library keep their type; std::bad_alloc becomes OutOfMemory, and
///          any other exception Error. At most three other causes follow in the text. Ranks that
///          fail with the same text are reported as the lowest of them. An aborted job is an error
///          even if no body throws. ConfigError unless 1 <= ranks <= 1024 and the options are
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
/// Errors:  without a job, an exception of `body` is passed on unchanged. In a job the other ranks
///          are told and leave, and the error is thrown as by run_ranks: at once on the (lowest)
///          rank that failed, and as CommError some seconds later on the others, if their processes
///          still run. The caller reports the error and exits: the exit status of its process ends
///          the job and becomes the job's. No further run is possible. A process that exits with
///          status 0 waits for the others until the deadline (with NCCL, no process waits for
///          others once its run has ended). ConfigError if the environment names a job that this
///          build cannot join (no MPI or CUDA module; torchrun on CPUs), or does not say where
///          ranks meet.
/// Threads: all runs of a job are made on one thread. MPI starts at the first run and ends with the
///          process.
void run(const std::function<void(World&)>& body, const WorldOptions& options = {});

}  // namespace tessera
