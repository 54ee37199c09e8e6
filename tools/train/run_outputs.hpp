#pragma once

#include <memory>
#include <optional>

#include "tools/common/folder_lock.hpp"
#include "tools/options/settings.hpp"
#include "tools/train/step_log.hpp"

namespace tessera::tools {

/// Files and locks that a run holds from its checks to its end, in the process with rank 0.
struct RunOutputs {
  std::optional<FolderLock> checkpoint;  ///< the folder of --checkpoint
  std::optional<StepLog> log;
};

/// Checks that each file that `settings` request can be written, at a path of its own that the run
/// does not read, and opens those that a run holds. ConfigError that says what to change. Creates
/// the folder of --checkpoint and changes nothing else. Reports on standard error what cannot be
/// guaranteed.
[[nodiscard]] std::shared_ptr<RunOutputs> open_outputs(const Settings& settings);

}  // namespace tessera::tools
