#pragma once

#include <functional>

#include "tessera/world/run.hpp"
#include "world/job_place.hpp"

namespace tessera::world {

/// Runs `body` as this process's rank of the job at `place`, on a CUDA device of its own, and ends
/// when all ranks have. Like run(), with NCCL between the ranks.
void run_in_nccl_job(const FoundPlace& place, const std::function<void(World&)>& body,
                     const WorldOptions& options);

}  // namespace tessera::world
