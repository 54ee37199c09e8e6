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

// The processes run already, and begin a run together.
constexpr std::chrono::seconds kMeet{10};

std::shared_ptr<TcpControlPlane> meet(MpiProcess& process, std::chrono::milliseconds deadline) {
  const auto patience = std::clamp<std::chrono::milliseconds>(deadline, kMeet, kLongestDeadline);
  auto [place, listener] =
      meet_over_mpi(process, [] { return chosen_meeting(environment); }, patience);
  place.job.build = build_id();
  return std::make_shared<TcpControlPlane>(place, patience, deadline, std::move(listener));
}

/// The process is of no further use to the job if it does not meet the others.
std::shared_ptr<TcpControlPlane> join(MpiProcess& process, std::chrono::milliseconds deadline) {
  try {
    return meet(process, deadline);
  } catch (const std::exception& error) {
    process.fail(error.what(), 0);
    // Rank 0 names the ranks that did not come: it reports first, and that ends the job.
    if (process.rank() != 0) { std::this_thread::sleep_for(kCourtesy); }
    throw;
  }
}

class MpiRank final : public JobRank {
 public:
  MpiRank(MpiProcess& process, const WorldOptions& options, const ProcessStart& start)
      : control_{join(process, options.deadline)},
        process_{process},
        options_{options},
        start_{start} {
    // No collective waits any more: rank 0 may still write files of any size.
    process.leave_within(std::clamp(options.deadline, WorldOptions{}.deadline, kLongestDeadline));
  }

 private:
  ControlPlane& control() noexcept override { return *control_; }
  World make_world() override {
    return WorldFactory::make_mpi(process_, control_, options_, start_);
  }
  void meet_at_end() override { (void)control_->exchange(CallKind::end, {}); }
  void leave() noexcept override { control_.reset(); }
  void before_end(const std::exception_ptr& error) override {
    process_.fail(text_of(error), control_->told_status());
    // The launcher has seen how the lost process ended, reports that, and ends the job.
    if (control_->lost_rank()) { std::this_thread::sleep_for(kCourtesy); }
  }

  std::shared_ptr<TcpControlPlane> control_;
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

World WorldFactory::make_mpi(MpiProcess& mpi, const std::shared_ptr<TcpControlPlane>& control,
                             const WorldOptions& options, const ProcessStart& process) {
  auto state =
      std::make_unique<World::State>(control->rank(), control->size(), options,
                                     make_device(options, control->rank()), options.device);
  state->process = process;
  const auto make = [&](MpiKind kind, const char* stream) {
    return std::make_unique<MpiCommunicator>(
        control, std::make_shared<MpiLine>(mpi, kind, *state->device, state->memory),
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
