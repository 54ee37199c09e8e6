#include "tools/options/ranks.hpp"

#include <fmt/format.h>

#include <chrono>
#include <thread>

#include "tessera/base/error.hpp"
#include "tessera/world/run.hpp"
#include "tools/common/standard_streams.hpp"
#include "tools/options/checkpoint.hpp"
#include "tools/options/library_options.hpp"
#include "tools/options/mesh.hpp"
#include "tools/options/shard_group.hpp"

namespace tessera::tools {
namespace {

// The time that a launcher needs at most to end a job after one process has failed.
constexpr std::chrono::seconds kTurn{3};

constexpr std::string_view kGetMpi =
    "this build has no MPI: install it (Debian: libopenmpi-dev openmpi-bin), configure with "
    "-DTESSERA_MPI=ON and build again";

/// A job of one process has nothing to join where several ranks were asked for.
CommChoice chosen(const Settings& asked, const std::optional<LaunchedJob>& job, bool has_mpi) {
  if (asked.comm != CommChoice::automatic) { return asked.comm; }
  const bool cuda = asked.world.device == DeviceKind::cuda;
  const bool joins = job && (job->size > 1 || (asked.ranks <= 1 && (cuda || has_mpi)));
  if (!joins) { return CommChoice::local; }
  return cuda ? CommChoice::nccl : CommChoice::mpi;
}

void check_nccl(const Settings& settings) {
  if (settings.comm == CommChoice::nccl) { return; }
  for (const char* const option : {"--nccl-min-ctas", "--nccl-max-ctas", "--nccl-windows"}) {
    if (!settings.changes(option)) { continue; }
    throw ConfigError(fmt::format(
        "{} has no effect, because NCCL does not join these ranks: leave it out, or start one "
        "process a GPU (torchrun, srun, mpirun) with --device cuda",
        option));
  }
}

void check_local(const Settings& settings) {
  if (settings.ranks > kMostThreadRanks) {
    throw ConfigError(
        fmt::format("--ranks: '{}' is not a whole number from 1 to {}, as ranks that are threads "
                    "of one process need; start more as processes, with mpirun or srun",
                    settings.ranks, kMostThreadRanks));
  }
}

[[noreturn]] void refuse_without_mpi(const std::optional<LaunchedJob>& job) {
  throw ConfigError(job ? fmt::format("{}, but {}; or use --comm local --ranks {}; {}",
                                      started_text(*job), kGetMpi, job->size, unset_text(*job))
                        : fmt::format("--comm mpi: {}; or use --comm local", kGetMpi));
}

[[noreturn]] void refuse_without_launcher(const Settings& settings) {
  const std::string ranks = settings.ranks == 0 ? "N" : std::to_string(settings.ranks);
  const std::string& command = settings.command_line;
  const std::string start =
      settings.comm == CommChoice::nccl
          ? fmt::format(
                "start one process a GPU (torchrun --nproc-per-node {0} --no-python {1}; or "
                "mpirun -n {0} ..., srun -n {0} ...)",
                ranks, command)
          : fmt::format("start it with mpirun -n {} {}", ranks, command);
  throw ConfigError(
      fmt::format("--comm {}: no launcher has started this process; {}, or use --comm local",
                  comm_name(settings), start));
}

void check_processes(const Settings& settings, const std::optional<LaunchedJob>& job) {
  if (!job) { refuse_without_launcher(settings); }
  if (settings.ranks != 0 && settings.ranks != job->size) {
    throw ConfigError(
        fmt::format("--ranks {}: each process is one rank, and {}; leave --ranks out, start {} "
                    "processes, or use --comm local; {}",
                    settings.ranks, started_text(*job), settings.ranks, unset_text(*job)));
  }
}

void check_graph(const Settings& settings) {
  if (!settings.graph) { return; }
  if (settings.world.device != DeviceKind::cuda) {
    throw ConfigError(
        "--graph: only a CUDA device can be given a step as a graph; leave it out, "
        "or use --device cuda");
  }
  if (settings.comm == CommChoice::local && settings.ranks > 1) {
    throw ConfigError(fmt::format(
        "--graph: {} ranks are threads that wait for each other within a step, which no graph can "
        "hold; leave it out, use one rank, or ranks that are processes (--comm nccl)",
        settings.ranks));
  }
  if (settings.steps <= kStepsBeforeGraphs) {
    throw ConfigError(fmt::format(
        "--graph has no effect on --steps {}: the first {} learn the order of units, and "
        "graphs begin with the next; leave it out, or make more steps",
        settings.steps, kStepsBeforeGraphs));
  }
}

}  // namespace

void require_device(const Settings& settings) {
  if (settings.world.device != DeviceKind::cuda) { return; }
  const CudaMachine machine = cuda_machine();
  if (machine.devices.empty()) {
    throw ConfigError(fmt::format("--device cuda: {}", machine.problem));
  }
}

Settings settle(Settings asked, const std::optional<LaunchedJob>& job, bool has_mpi) {
  asked.comm = chosen(asked, job, has_mpi);
  check_device(asked);
  const bool local = asked.comm == CommChoice::local;
  if (asked.comm == CommChoice::mpi && !has_mpi) { refuse_without_mpi(job); }
  local ? check_local(asked) : check_processes(asked, job);
  if (asked.ranks == 0) { asked.ranks = local ? 1 : job->size; }
  check_mesh_options(asked);
  asked.sharded.shard_group = settled_shard_group(asked, job);
  check_with_library(asked, strategies_of(asked), {asked.ranks});
  check_host_threads(asked);
  check_nccl(asked);
  check_graph(asked);
  check_checkpoint(asked);
  return asked;
}

Settings settle(const Settings& asked) {
  return in_turn([&] {
    const auto job =
        asked.comm == CommChoice::local ? std::nullopt : launched_job(asked.world.device);
    Settings settled = settle(asked, job, !mpi_version().empty());
    require_device(settled);
    return settled;
  });
}

void run_on_ranks(const Settings& settings, const std::function<void(World&)>& body) {
  const WorldOptions options = world_options(settings);
  if (settings.comm == CommChoice::local) { return run_ranks(settings.ranks, body, options); }
  run(body, options);
}

bool has_rank0(const Settings& settings) {
  return settings.comm == CommChoice::local || launched_rank() == 0;
}

bool runs_alone(std::string_view command) {
  const int rank = launched_rank();
  if (rank == 0) { return true; }
  const std::optional<LaunchedJob> job = launched_job(DeviceKind::cuda);  // refuses no launcher
  tell(fmt::format("tessera {}: process {} leaves this to process 0: {}; {}\n", command, rank,
                   started_text(job.value()), unset_text(*job)));
  return false;
}

void fail_together(World& world, const std::exception_ptr& error) {
  const std::vector<std::string> failed = world.exchange(error ? "failed" : "");
  int lowest = 0;
  while (lowest < world.size() && failed[static_cast<std::size_t>(lowest)].empty()) { ++lowest; }
  if (lowest == world.size()) { return; }
  if (lowest == world.rank()) { std::rethrow_exception(error); }
  world.barrier();  // throws as soon as the failed rank does
}

void await_turn() {
  if (launched_rank() != 0) { std::this_thread::sleep_for(kTurn); }
}

}  // namespace tessera::tools
