#include "world/launcher.hpp"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <exception>
#include <string_view>
#include <system_error>

#include "base/environment.hpp"
#include "tessera/base/error.hpp"
#include "tessera/base/shown.hpp"

namespace tessera {
namespace {

/// `size` and `rank` are variables set in a process of the job; the first variable of `on_machine`
/// that is set gives the number of processes on its machine.
struct Launcher {
  LauncherKind kind;
  const char* name;
  const char* size;
  const char* rank;
  std::array<const char*, 3> on_machine;
};

// The inner launcher comes first: in a batch job with mpirun, mpirun counts.
constexpr std::array<Launcher, 4> kLaunchers{{
    {LauncherKind::mpirun,
     "mpirun (Open MPI)",
     "OMPI_COMM_WORLD_SIZE",
     "OMPI_COMM_WORLD_RANK",
     {"OMPI_COMM_WORLD_LOCAL_SIZE"}},
    {LauncherKind::mpirun, "mpirun (MPICH, PMI)", "PMI_SIZE", "PMI_RANK", {"MPI_LOCALNRANKS"}},
    {LauncherKind::srun,
     "srun (Slurm)",
     "SLURM_NTASKS",
     "SLURM_PROCID",
     {"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE", "SLURM_NTASKS_PER_NODE"}},
    {LauncherKind::torchrun, "torchrun", "WORLD_SIZE", "RANK", {"LOCAL_WORLD_SIZE"}},
}};

/// The number in `text`; Slurm's "4(x2)" is 4 on each of 2 machines. Empty for anything else.
std::optional<int> same_on_each(std::string_view text) {
  int number = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc{}) { return {}; }
  const std::string_view rest{stop, static_cast<std::size_t>(end - stop)};
  const bool repeated = rest.starts_with("(x") && rest.find(')') + 1 == rest.size();
  return rest.empty() || repeated ? std::optional{number} : std::nullopt;
}

/// Empty, without an error, if no variable says so in a known form: most runs need not know.
std::optional<int> on_machine(const Launcher& launcher, const ReadVariable& read, int size) {
  for (const char* const name : launcher.on_machine) {
    const std::optional<std::string> text = name == nullptr ? std::nullopt : read(name);
    if (!text) { continue; }
    const std::optional<int> number = same_on_each(*text);
    return number && *number >= 1 && *number <= size ? number : std::nullopt;
  }
  return {};
}

int parse(const char* variable, const std::string& text, int least, const char* what) {
  int number = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc{} || stop != end || number < least) {
    throw ConfigError{
        fmt::format("the environment variable {} is \"{}\", which is not {}; unset it", variable,
                    shown(text), what)};
  }
  return number;
}

}  // namespace

std::optional<FoundJob> find_job(const ReadVariable& read) {
  for (const Launcher& launcher : kLaunchers) {
    const std::optional<std::string> size_text = read(launcher.size);
    const std::optional<std::string> rank_text = read(launcher.rank);
    if (!size_text || !rank_text) { continue; }
    const int size = parse(launcher.size, *size_text, 1, "a number of processes");
    const int rank = parse(launcher.rank, *rank_text, 0, "a process's number");
    if (rank >= size) {
      throw ConfigError{
          fmt::format("the environment says that this is process {} ({}) of {} ({}), which cannot "
                      "be; correct or unset these variables",
                      rank, launcher.rank, size, launcher.size)};
    }
    return FoundJob{launcher.kind,
                    {launcher.name, launcher.size, rank, size, on_machine(launcher, read, size)}};
  }
  return std::nullopt;
}

std::optional<LaunchedJob> joined_job(const std::optional<FoundJob>& found, DeviceKind device) {
  if (!found) { return std::nullopt; }
  const LaunchedJob& job = found->job;
  if (found->kind == LauncherKind::torchrun && device == DeviceKind::cuda) { return job; }
  if (found->kind == LauncherKind::torchrun && job.size > 1) {
    throw ConfigError{
        fmt::format("{} started this as one of {} processes ({}), but processes on the CPU are "
                    "joined by MPI: start them with mpirun -n {}, or start one process whose ranks "
                    "are threads (run_ranks, --ranks {})",
                    job.launcher, job.size, job.variable, job.size, job.size)};
  }
  // A shell within a Slurm allocation looks like a job of one, where MPI need not start.
  if (found->kind != LauncherKind::mpirun && job.size == 1) { return std::nullopt; }
  return job;
}

std::optional<LaunchedJob> launched_job(DeviceKind device) {
  return joined_job(find_job(environment), device);
}

int launched_rank() noexcept {
  try {
    const std::optional<FoundJob> found = find_job(environment);
    return found ? found->job.rank : 0;
  } catch (const std::exception&) { return 0; }  // launched_job() reports the error
}

}  // namespace tessera
