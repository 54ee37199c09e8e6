#include "world/mpi_job.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "base/resident.hpp"
#include "comm/control/job_end.hpp"
#include "comm/control/rank_errors.hpp"
#include "comm/mpi/mpi_communicator.hpp"
#include "comm/mpi/mpi_process.hpp"
#include "tessera/base/error.hpp"
#include "world/job_rank.hpp"
#include "world/world_state.hpp"

namespace tessera {
namespace {

MpiProcess& join(const LaunchedJob& job) {
  MpiProcess& process = MpiProcess::start();
  if (process.size() != job.size) {
    throw ConfigError{fmt::format(
        "{}, but {} sees {}; start it with the mpirun of the MPI library that this build uses; {}",
        started_text(job), mpi_library_version(), process.size(), unset_text(job))};
  }
  return process;
}

MpiProcess& start(const LaunchedJob& job) {
  try {
    MpiProcess& process = join(job);
    process.check_usable();
    return process;
  } catch (const ConfigError&) {  // every process finds it: rank 0 reports it
    if (job.rank != 0) { std::this_thread::sleep_for(kCourtesy); }
    throw;
  }
}

/// Measured before the run's own memory. This run or an earlier one has started MPI.
ProcessStart start_of(const MpiProcess& process) {
  const std::size_t resident = resident_bytes();
  const std::size_t mpi = std::min(process.start_bytes(), resident);
  return {.ranks = 1, .context_bytes = resident - mpi, .mpi_bytes = mpi};
}

class MpiRank final : public JobRank {
 public:
  MpiRank(MpiProcess& process, const WorldOptions& options, const ProcessStart& start)
      : control_{std::make_shared<MpiControlPlane>(process, options.deadline)},
        process_{process},
        options_{options},
        start_{start} {
    // No collective waits any more: rank 0 may still write files of any size.
    process.leave_within(std::max(options.deadline, WorldOptions{}.deadline));
  }

 private:
  ControlPlane& control() noexcept override { return *control_; }
  World make_world() override { return WorldFactory::make_mpi(control_, options_, start_); }
  void meet_at_end() override { tessera::meet_at_end(*control_); }
  void leave() noexcept override { control_.reset(); }
  // MPI tells the others the error of this process while any of them waits for it.
  void before_end(const std::exception_ptr& error) override {
    process_.fail(text_of(error), control_->told_status());
    leave();
  }

  std::shared_ptr<MpiControlPlane> control_;
  MpiProcess& process_;
  const WorldOptions& options_;
  const ProcessStart start_;
};

}  // namespace

std::string mpi_version() {
  return mpi_library_version();
}

void run_in_mpi_job(const LaunchedJob& job, const std::function<void(World&)>& body,
                    const WorldOptions& options) {
  MpiProcess& process = start(job);
  MpiRank{process, options, start_of(process)}.run(body);
}

World WorldFactory::make_mpi(const std::shared_ptr<MpiControlPlane>& control,
                             const WorldOptions& options, const ProcessStart& process) {
  auto state =
      std::make_unique<World::State>(control->rank(), control->size(), options,
                                     make_device(options, control->rank()), options.device);
  state->process = process;
  const auto make = [&](MpiKind kind, const char* stream) {
    return std::make_unique<MpiCommunicator>(
        control, kind, *state->device, state->memory,
        Instruments{state->recorder.get(), options.testing.delays, stream,
                    kind == MpiKind::gather ? kGatherNumber : kReduceNumber});
  };
  state->names = &control->names();
  state->gather = make(MpiKind::gather, "gather");
  state->reduce = make(MpiKind::reduce, "reduce");
  make_streams(*state);
  return World{std::move(state)};
}

}  // namespace tessera
