#pragma once

#include <functional>
#include <optional>
#include <string>

namespace tessera {

/// A job of several processes that this one is part of, as its launcher's variables tell.
struct LaunchedJob {
  std::string launcher;  ///< "mpirun (Open MPI)", "srun", ...
  std::string variable;  ///< what says how many processes there are
  int size;
};

using ReadVariable = std::function<std::optional<std::string>(const char* name)>;

/// Empty if no launcher's variables are set. ConfigError if a size is not a number.
[[nodiscard]] std::optional<LaunchedJob> find_launched_job(const ReadVariable& read);

/// ConfigError, saying what to do, if this process is one of several of a job.
void refuse_launched_job();

}  // namespace tessera
