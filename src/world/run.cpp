#include "tessera/world/run.hpp"

#include "base/environment.hpp"
#include "base/resident.hpp"
#include "comm/control/local/local_ranks.hpp"
#include "tessera/world/launch.hpp"
#include "world/job_place.hpp"
#include "world/launcher.hpp"
#include "world/mpi_job.hpp"
#include "world/nccl_job.hpp"
#include "world/world_state.hpp"

namespace tessera {
namespace {

void run_alone(const std::function<void(World&)>& body, const WorldOptions& options) {
  const ProcessStart process{.ranks = 1, .context_bytes = resident_bytes()};
  World world = world::WorldFactory::make_local(world::WorldFactory::make_local_ranks(1, options),
                                                0, options, process);
  body(world);
  world::WorldFactory::finish(world);
}

}  // namespace

void run(const std::function<void(World&)>& body, const WorldOptions& options) {
  validate(options);
  const std::optional<LaunchedJob> job = launched_job(options.device);
  if (job && options.device == DeviceKind::cuda) {
    return world::run_in_nccl_job(world::find_place(*world::find_job(environment), environment),
                                  body, options);
  }
  if (!job || (job->size == 1 && mpi_version().empty())) { return run_alone(body, options); }
  world::run_in_mpi_job(*job, body, options);
}

}  // namespace tessera
