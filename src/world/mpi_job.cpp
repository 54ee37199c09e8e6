#include "world/mpi_job.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>
#include <utility>

#include "base/environment.hpp"
#include "base/resident.hpp"
#include "comm/control/failure_texts.hpp"
#include "comm/control/job_end.hpp"
#include "comm/control/rank_errors.hpp"
#include "comm/control/tcp/tcp_control_plane.hpp"
#include "comm/mpi/mpi_channel.hpp"
#include "comm/mpi/mpi_communicator.hpp"
#include "comm/mpi/mpi_meeting.hpp"
#include "comm/mpi/mpi_process.hpp"
#include "device/cuda_module.hpp"
#include "tessera/base/error.hpp"
#include "world/job_place.hpp"
#include "world/job_rank.hpp"
#include "world/world_state.hpp"

namespace tessera::world {
namespace {

comm::MpiProcess& join(const LaunchedJob& job) {
  comm::MpiProcess& process = comm::MpiProcess::start();
  if (process.size() != job.size) {
    throw ConfigError{fmt::format(
        "{}, but {} sees {}; start it with the mpirun of the MPI library that this build uses; {}",
        started_text(job), comm::mpi_library_version(), process.size(), unset_text(job))};
  }
  return process;
}

comm::MpiProcess& start(const LaunchedJob& job) {
  try {
    comm::MpiProcess& process = join(job);
    process.check_usable();
    return process;
  } catch (const ConfigError&) {  // every process finds it: rank 0 reports it
    if (job.rank != 0) { std::this_thread::sleep_for(comm::kCourtesy); }
    throw;
  }
}

/// Measured before the run's own memory. This run or an earlier one has started MPI.
ProcessStart start_of(const comm::MpiProcess& process) {
  const std::size_t resident = resident_bytes();
  const std::size_t mpi = std::min(process.start_bytes(), resident);
  return {.ranks = 1, .context_bytes = resident - mpi, .mpi_bytes = mpi};
}

// The processes run already, and begin a run together.
constexpr std::chrono::seconds kMeet{10};

std::shared_ptr<comm::TcpControlPlane> meet(comm::MpiProcess& process,
                                            std::chrono::milliseconds deadline) {
  const auto patience =
      std::clamp<std::chrono::milliseconds>(deadline, kMeet, comm::kLongestDeadline);
  auto [place, listener] =
      comm::meet_over_mpi(process, [] { return chosen_meeting(environment); }, patience);
  place.job.build = device::build_id();
  return std::make_shared<comm::TcpControlPlane>(place, patience, deadline, std::move(listener));
}

/// The process is of no further use to the job if it does not meet the others.
std::shared_ptr<comm::TcpControlPlane> join(comm::MpiProcess& process,
                                            std::chrono::milliseconds deadline) {
  try {
    return meet(process, deadline);
  } catch (const std::exception& error) {
    process.fail(error.what(), 0);
    // Rank 0 names the ranks that did not come: it reports first, and that ends the job.
    if (process.rank() != 0) { std::this_thread::sleep_for(comm::kCourtesy); }
    throw;
  }
}

class MpiRank final : public JobRank {
 public:
  MpiRank(comm::MpiProcess& process, const WorldOptions& options, const ProcessStart& start)
      : control_{join(process, options.deadline)},
        process_{process},
        options_{options},
        start_{start} {
    // No collective waits any more: rank 0 may still write files of any size.
    process.leave_within(
        std::clamp(options.deadline, WorldOptions{}.deadline, comm::kLongestDeadline));
  }

 private:
  comm::ControlPlane& control() noexcept override { return *control_; }
  World make_world() override {
    return WorldFactory::make_mpi(process_, control_, options_, start_);
  }
  void meet_at_end() override { (void)control_->exchange(comm::CallKind::end, {}); }
  void leave() noexcept override { control_.reset(); }
  void before_end(const std::exception_ptr& error) override {
    process_.fail(comm::text_of(error), control_->told_status());
    // The launcher has seen how the lost process ended, reports that, and ends the job.
    if (control_->lost_rank()) { std::this_thread::sleep_for(comm::kCourtesy); }
  }

  std::shared_ptr<comm::TcpControlPlane> control_;
  comm::MpiProcess& process_;
  const WorldOptions& options_;
  const ProcessStart start_;
};

}  // namespace

void run_in_mpi_job(const LaunchedJob& job, const std::function<void(World&)>& body,
                    const WorldOptions& options) {
  comm::MpiProcess& process = start(job);
  MpiRank{process, options, start_of(process)}.run(body);
}

World WorldFactory::make_mpi(comm::MpiProcess& mpi,
                             const std::shared_ptr<comm::TcpControlPlane>& control,
                             const WorldOptions& options, const ProcessStart& process) {
  auto state =
      std::make_unique<world::WorldState>(control->rank(), control->size(), options,
                                          make_device(options, control->rank()), options.device);
  state->process = process;
  const auto make = [&](comm::MpiKind kind, const char* stream) {
    return std::make_unique<comm::MpiCommunicator>(
        control, std::make_shared<comm::MpiLine>(mpi, kind, *state->device, state->memory),
        comm::Instruments{
            state->recorder.get(), options.testing.delays, stream,
            kind == comm::MpiKind::gather ? comm::kGatherNumber : comm::kReduceNumber});
  };
  state->names = &control->names();
  state->gather = make(comm::MpiKind::gather, "gather");
  state->reduce = make(comm::MpiKind::reduce, "reduce");
  make_streams(*state);
  return World{std::move(state)};
}

}  // namespace tessera::world

std::string tessera::mpi_version() {
  return comm::mpi_library_version();
}
