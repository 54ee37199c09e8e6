#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "tessera/checkpoint/checkpoint.hpp"
#include "tools/options/settings.hpp"

namespace tessera::tools {

struct Job;

/// The checkpoint that a run continues from.
struct Resume {
  std::filesystem::path path;                       ///< the folder of the checkpoint
  std::int64_t step = 0;                            ///< the last step before the checkpoint
  std::int64_t data_steps = 0;                      ///< of the TokenLoader, before the next one
  std::vector<std::string> messages = {};           ///< messages for the user, one line each
  std::vector<std::filesystem::path> damaged = {};  ///< newer checkpoints that are damaged
  std::optional<SeenParts> seen = {};               ///< on the machines of a job of processes
};

/// The checkpoint that --resume or --resume-from of `job` requests; the job's data must be open.
/// Reads only its manifest. `seen`: what the processes of a job have in their run's folders.
///
/// Errors: ConfigError if there is none, and for a run that differs from its writer
///         (changes_since). FormatError if a checkpoint is named and damaged.
[[nodiscard]] Resume find_resume(const Job& job, const std::optional<SeenParts>& seen);

/// The folder of the run that --resume or --resume-from of `settings` names; empty for neither.
[[nodiscard]] std::filesystem::path resumed_run(const Settings& settings);

/// The newest checkpoint before job.resume, in which a load found `damage`. Errors as above;
/// FormatError with `damage` if there is none.
[[nodiscard]] Resume find_older(const Job& job, const std::string& damage);

/// The step of a checkpoint folder by its name, "step-00000012"; empty for other names.
[[nodiscard]] std::optional<std::int64_t> step_of(const std::filesystem::path& folder);

/// Whether `folder` holds folders of steps or of their parts.
[[nodiscard]] bool has_steps(const std::filesystem::path& folder);

/// ConfigError if the folder of --checkpoint holds checkpoints that would be confused with this
/// run's: of an earlier run, or newer than --resume-from.
void refuse_other_run(const Job& job);

/// Renames the damaged checkpoints that --resume skipped (Resume::damaged), since they would count
/// as newest. Links and files stay. Returns messages for the user.
[[nodiscard]] std::vector<std::string> set_damaged_aside(const Job& job);

}  // namespace tessera::tools
