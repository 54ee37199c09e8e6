#include "comm/launcher.hpp"

#include <fmt/format.h>

#include <array>
#include <charconv>

#include "base/environment.hpp"
#include "tessera/base/error.hpp"

namespace tessera {
namespace {

struct Launcher {
  const char* name;
  const char* size;
  const char* rank;  ///< also set in a process of the job; null if `size` alone tells
};

constexpr std::array<Launcher, 4> kLaunchers{{
    {"mpirun (Open MPI)", "OMPI_COMM_WORLD_SIZE", nullptr},
    {"mpirun (MPICH, PMI)", "PMI_SIZE", nullptr},
    {"srun (Slurm)", "SLURM_NTASKS", "SLURM_PROCID"},
    {"torchrun", "WORLD_SIZE", "RANK"},
}};

int parse_size(const char* variable, const std::string& text) {
  int size = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, size);
  if (error != std::errc{} || stop != end || size < 1) {
    throw ConfigError{fmt::format(
        "the environment variable {} is \"{}\", which is not a number of processes; unset it",
        variable, text)};
  }
  return size;
}

}  // namespace

std::optional<LaunchedJob> find_launched_job(const ReadVariable& read) {
  for (const Launcher& launcher : kLaunchers) {
    const std::optional<std::string> size = read(launcher.size);
    if (!size || (launcher.rank != nullptr && !read(launcher.rank))) { continue; }
    return LaunchedJob{launcher.name, launcher.size, parse_size(launcher.size, *size)};
  }
  return std::nullopt;
}

void refuse_launched_job() {
  const std::optional<LaunchedJob> job = find_launched_job(environment);
  if (!job || job->size == 1) { return; }
  throw ConfigError{fmt::format(
      "{} started this as one of {} processes ({}), but this build cannot join a job of several "
      "processes; start one process and let it run its ranks as threads (run_ranks, --ranks {})",
      job->launcher, job->size, job->variable, job->size)};
}

}  // namespace tessera
