#include "ranks.hpp"

#include <fmt/format.h>

#include <chrono>
#include <thread>

#include "tessera/base/error.hpp"

namespace tessera::tools {
namespace {

// A launcher needs that long at most to end a job of which one process has failed.
constexpr std::chrono::seconds kTurn{3};

constexpr std::string_view kGetMpi =
    "this build has no MPI: install it (Debian: libopenmpi-dev openmpi-bin), configure with "
    "-DTESSERA_MPI=ON and build again";

CommChoice chosen(CommChoice asked, const std::optional<LaunchedJob>& job, bool has_mpi) {
  if (asked != CommChoice::automatic) { return asked; }
  const bool joins = job && (has_mpi || job->size > 1);
  return joins ? CommChoice::mpi : CommChoice::local;
}

std::string started_by(const LaunchedJob& job) {
  return fmt::format("{} started this as one of {} processes ({})", job.launcher, job.size,
                     job.variable);
}

// Each process would train alone and write the others' files.
void check_local(const Settings& settings, const std::optional<LaunchedJob>& job) {
  if (job && job->size > 1) {
    throw ConfigError(
        fmt::format("--comm local: {}, and each would train alone; leave it out to join them, or "
                    "start one process with --ranks {}",
                    started_by(*job), job->size));
  }
  if (settings.ranks > kMostThreadRanks) {
    throw ConfigError(
        fmt::format("--ranks: '{}' is not a whole number from 1 to {}, as ranks that are threads "
                    "of one process need; start more with mpirun",
                    settings.ranks, kMostThreadRanks));
  }
}

void check_mpi(const Settings& settings, const std::optional<LaunchedJob>& job, bool has_mpi) {
  if (!has_mpi) {
    throw ConfigError(job ? fmt::format("{}, but {}; or start one process with --ranks {}",
                                        started_by(*job), kGetMpi, job->size)
                          : fmt::format("--comm mpi: {}; or use --comm local", kGetMpi));
  }
  if (!job) {
    throw ConfigError(
        fmt::format("--comm mpi: no launcher has started this process; start it with mpirun -n {}, "
                    "or use --comm local",
                    settings.ranks == 0 ? "N" : std::to_string(settings.ranks)));
  }
  if (settings.ranks != 0 && settings.ranks != job->size) {
    throw ConfigError(
        fmt::format("--ranks {}: each process is one rank, and {}; leave --ranks out, or start {} "
                    "processes",
                    settings.ranks, started_by(*job), settings.ranks));
  }
}

}  // namespace

WorldOptions world_options(const Settings& settings) {
  WorldOptions options;
  options.threads = settings.threads;
  options.budget_bytes = settings.budget_bytes;
  options.trace = settings.records();
  return options;
}

Settings settle(Settings asked, const std::optional<LaunchedJob>& job, bool has_mpi) {
  asked.comm = chosen(asked.comm, job, has_mpi);
  const bool local = asked.comm == CommChoice::local;
  if (local) {
    check_local(asked, job);
  } else {
    check_mpi(asked, job, has_mpi);
  }
  if (asked.ranks == 0) { asked.ranks = local ? 1 : job->size; }
  return asked;
}

Settings settle(const Settings& asked) {
  return in_turn([&] { return settle(asked, launched_job(), !mpi_version().empty()); });
}

void run_on_ranks(const Settings& settings, const std::function<void(World&)>& body) {
  const WorldOptions options = world_options(settings);
  if (settings.comm == CommChoice::mpi) { return run(body, options); }
  run_ranks(settings.ranks, body, options);
}

bool has_rank0() {
  return launched_rank() == 0;
}

void fail_together(World& world, const std::exception_ptr& error) {
  const std::vector<std::string> failed = world.exchange(error ? "failed" : "");
  int lowest = 0;
  while (lowest < world.size() && failed[static_cast<std::size_t>(lowest)].empty()) { ++lowest; }
  if (lowest == world.size()) { return; }
  if (lowest == world.rank()) { std::rethrow_exception(error); }
  world.barrier();  // throws as soon as that rank has
}

void await_turn() {
  if (!has_rank0()) { std::this_thread::sleep_for(kTurn); }
}

}  // namespace tessera::tools
