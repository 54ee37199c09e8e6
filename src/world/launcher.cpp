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

namespace tessera::world {
namespace {

/// `size` and `rank` are variables set in a process of the job: the first of `size` that is set
/// gives the number of processes, the first of `on_machine` that on its machine.
struct Launcher {
  LauncherKind kind;
  const char* name;
  std::array<const char*, 2> size;
  const char* rank;
  std::array<const char*, 3> on_machine;
};

constexpr Launcher kOpenMpi{LauncherKind::mpirun,
                            "mpirun (Open MPI)",
                            {"OMPI_COMM_WORLD_SIZE"},
                            "OMPI_COMM_WORLD_RANK",
                            {"OMPI_COMM_WORLD_LOCAL_SIZE"}};
constexpr Launcher kPmi{
    LauncherKind::mpirun, "mpirun (MPICH, PMI)", {"PMI_SIZE"}, "PMI_RANK", {"MPI_LOCALNRANKS"}};
// The size of the step comes first: a shell within an allocation is a step of one process.
constexpr Launcher kSlurm{
    LauncherKind::srun,
    "srun (Slurm)",
    {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"},
    "SLURM_PROCID",
    {"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE", "SLURM_NTASKS_PER_NODE"}};
constexpr Launcher kTorchrun{
    LauncherKind::torchrun, "torchrun", {"WORLD_SIZE"}, "RANK", {"LOCAL_WORLD_SIZE"}};

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

/// The job of `launcher` if its variables are set.
std::optional<FoundJob> find_job_of(const Launcher& launcher, const ReadVariable& read) {
  const std::optional<std::string> rank_text = read(launcher.rank);
  if (!rank_text) { return {}; }
  for (const char* const variable : launcher.size) {
    const std::optional<std::string> size_text =
        variable == nullptr ? std::nullopt : read(variable);
    if (!size_text) { continue; }
    const int size = parse(variable, *size_text, 1, "a number of processes");
    const int rank = parse(launcher.rank, *rank_text, 0, "a process's number");
    if (rank >= size) {
      throw ConfigError{
          fmt::format("the environment says that this is process {} ({}) of {} ({}), which cannot "
                      "be; correct or unset these variables",
                      rank, launcher.rank, size, variable)};
    }
    return FoundJob{launcher.kind,
                    {launcher.name, variable, rank, size, on_machine(launcher, read, size)}};
  }
  return {};
}

/// Slurm gives the shell of a batch job the number 0 among the tasks that srun may start there.
bool is_batch_shell(const FoundJob& slurm, const ReadVariable& read) {
  return slurm.job.rank == 0 && !read("SLURM_STEP_ID") && !read("SLURM_STEP_NUM_TASKS");
}

bool same_place(const FoundJob& one, const FoundJob& other) {
  return one.job.rank == other.job.rank && one.job.size == other.job.size;
}

}  // namespace

// The only place that says which launcher a process belongs to. The inner one comes first: in a
// batch job with mpirun, mpirun counts.
std::optional<FoundJob> find_job(const ReadVariable& read) {
  if (auto found = find_job_of(kOpenMpi, read)) { return found; }
  std::optional<FoundJob> slurm = find_job_of(kSlurm, read);
  if (slurm && is_batch_shell(*slurm, read)) { slurm.reset(); }
  std::optional<FoundJob> pmi = find_job_of(kPmi, read);
  if (pmi && slurm && same_place(*pmi, *slurm)) { pmi.reset(); }  // srun speaks PMI too
  if (pmi) { return pmi; }
  return slurm ? slurm : find_job_of(kTorchrun, read);
}

std::optional<LaunchedJob> joined_job(const std::optional<FoundJob>& found, DeviceKind device) {
  if (!found) { return std::nullopt; }
  const LaunchedJob& job = found->job;
  if (found->kind == LauncherKind::torchrun && device == DeviceKind::cuda) { return job; }
  if (found->kind == LauncherKind::torchrun && job.size > 1) {
    throw ConfigError{
        fmt::format("{}, but processes on the CPU are joined by MPI: start them with mpirun -n {}, "
                    "or start one process whose ranks are threads (run_ranks, --comm local --ranks "
                    "{}); {}",
                    started_text(job), job.size, job.size, unset_text(job))};
  }
  // A shell within a Slurm allocation looks like a job of one, where MPI need not start.
  if (found->kind != LauncherKind::mpirun && job.size == 1) { return std::nullopt; }
  return job;
}

}  // namespace tessera::world

namespace tessera {

std::string started_text(const LaunchedJob& job) {
  return fmt::format("{} started this as one of {} processes ({})", job.launcher, job.size,
                     job.variable);
}

std::string unset_text(const LaunchedJob& job) {
  return fmt::format("if it did not, unset {}", job.variable);
}

std::optional<LaunchedJob> launched_job(DeviceKind device) {
  return world::joined_job(world::find_job(environment), device);
}

int launched_rank() noexcept {
  try {
    const std::optional<world::FoundJob> found = world::find_job(environment);
    return found ? found->job.rank : 0;
  } catch (const std::exception&) { return 0; }  // launched_job() reports the error
}

}  // namespace tessera
