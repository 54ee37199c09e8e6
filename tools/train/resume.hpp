#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace tessera::tools {

struct Job;

/// What a run goes on from.
struct Resume {
  std::filesystem::path path;                       ///< the folder of the checkpoint
  std::int64_t step = 0;                            ///< that it was saved after
  std::int64_t data_steps = 0;                      ///< of the TokenLoader, before the next one
  std::vector<std::string> messages = {};           ///< what the user is told, each a line
  std::vector<std::filesystem::path> damaged = {};  ///< newer ones that are not whole
};

/// The checkpoint that --resume or --resume-from of `job` asks for, whose data are open. Reads its
/// manifest alone.
///
/// Errors: ConfigError if there is none, and for a run that differs from its writer
///         (changes_since). FormatError for a damaged checkpoint that was named.
[[nodiscard]] Resume find_resume(const Job& job);

/// The newest checkpoint before job.resume, whose load has found `damage` in it. The same errors;
/// FormatError with `damage` if there is none.
[[nodiscard]] Resume find_older(const Job& job, const std::string& damage);

/// The step of a folder named as checkpoints are, "step-00000012"; empty for other names.
[[nodiscard]] std::optional<std::int64_t> step_of(const std::filesystem::path& folder);

/// ConfigError if the folder of --checkpoint holds checkpoints that this run would be mixed up
/// with: of an earlier run, or newer than what --resume-from names.
void refuse_other_run(const Job& job);

/// Renames the damaged checkpoints that --resume has passed over (Resume::damaged): they would
/// count as newest. Links and files stay. Returns what the user is told.
[[nodiscard]] std::vector<std::string> set_damaged_aside(const Job& job);

}  // namespace tessera::tools
