#include "comm/mpi/mpi_job.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <thread>

#include "base/resident.hpp"
#include "comm/job_end.hpp"
#include "comm/mpi/mpi_communicator.hpp"
#include "comm/mpi/mpi_process.hpp"
#include "comm/rank_errors.hpp"
#include "comm/world_state.hpp"
#include "tessera/base/error.hpp"

namespace tessera {
namespace {

MpiProcess& join(const LaunchedJob& job) {
  MpiProcess& process = MpiProcess::start();
  if (process.size() != job.size) {
    throw ConfigError{fmt::format(
        "{} started this as one of {} processes ({}), but {} sees {}; start it with the mpirun of "
        "the MPI library that this build uses",
        job.launcher, job.size, job.variable, mpi_library_version(), process.size())};
  }
  return process;
}

MpiProcess& start(const LaunchedJob& job) {
  try {
    MpiProcess& process = join(job);
    process.check_usable();
    return process;
  } catch (const ConfigError&) {  // every process finds it: rank 0 has the word
    if (job.rank != 0) { std::this_thread::sleep_for(kCourtesy); }
    throw;
  }
}

/// Before the run's own memory. MPI has been started, by this run or an earlier one.
ProcessStart start_of(const MpiProcess& process) {
  const std::size_t resident = resident_bytes();
  const std::size_t mpi = std::min(process.start_bytes(), resident);
  return {.ranks = 1, .context_bytes = resident - mpi, .mpi_bytes = mpi};
}

/// This process's rank: what run() does between the start and the end of a job.
class MpiRank {
 public:
  MpiRank(MpiProcess& process, const WorldOptions& options)
      : process_{process},
        options_{options},
        start_{start_of(process)},
        group_{std::make_shared<MpiGroup>(process, options.deadline)} {
    process.leave_within(options.deadline);
  }

  void run(const std::function<void(World&)>& body) {
    try {
      World world = WorldFactory::make_mpi(group_, options_, start_);
      try {
        body(world);
        group_->check_alive();  // a body may have swallowed it
        WorldFactory::finish(world);
        meet_at_end(*group_);
      } catch (...) {  // tell the peers before the world's end waits for them
        fail(std::current_exception());
        throw;
      }
    } catch (...) {
      const std::exception_ptr error = std::current_exception();
      fail(error);  // unless it has
      end(error);
    }
  }

 private:
  void fail(const std::exception_ptr& error) noexcept {
    const int status = exit_status_of(error);
    try {
      group_->abort(fmt::format("rank {}: {}", process_.rank(), text_of(error)), status);
    } catch (...) { group_->abort("out of memory", status); }
  }

  [[noreturn]] void end(const std::exception_ptr& error) {
    group_->give_way();
    const bool another_reports = group_->another_reports();
    process_.fail(text_of(error), group_->told_status());
    group_.reset();  // what it tells the others has gone
    if (another_reports) { std::this_thread::sleep_for(kCourtesy); }
    if (another_reports && is_echo(error)) {
      std::rethrow_exception(error);  // its text begins with the rank that failed
    }
    rethrow_with_rank(error, process_.rank());
  }

  MpiProcess& process_;
  const WorldOptions& options_;
  ProcessStart start_;
  std::shared_ptr<MpiGroup> group_;
};

}  // namespace

std::string mpi_version() {
  return mpi_library_version();
}

void run_in_mpi_job(const LaunchedJob& job, const std::function<void(World&)>& body,
                    const WorldOptions& options) {
  MpiRank{start(job), options}.run(body);
}

World WorldFactory::make_mpi(const std::shared_ptr<MpiGroup>& group, const WorldOptions& options,
                             const ProcessStart& process) {
  auto state = std::make_unique<World::State>(group->rank(), group->size(), options,
                                              make_device(options, group->rank()), options.device);
  state->process = process;
  const auto make = [&](MpiTexts kind, const char* stream) {
    return std::make_unique<MpiCommunicator>(
        group, kind, *state->device, state->memory,
        Instruments{state->recorder.get(), options.delays, stream});
  };
  state->gather = make(MpiTexts::gather, "gather");
  state->reduce = make(MpiTexts::reduce, "reduce");
  make_streams(*state);
  return World{std::move(state)};
}

}  // namespace tessera
