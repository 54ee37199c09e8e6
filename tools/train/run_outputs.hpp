#pragma once

#include <memory>
#include <optional>

#include "tools/common/folder_lock.hpp"
#include "tools/options/settings.hpp"
#include "tools/train/step_log.hpp"

namespace tessera::tools {

/// What a run holds open from its checks to its end, on the process with rank 0.
struct RunOutputs {
  std::optional<FolderLock> checkpoint;  ///< the folder of --checkpoint
  std::optional<StepLog> log;
};

/// Checks that all files that `settings` ask for can be written, each by itself and to a place of
/// its own that the run does not read, and opens what a run holds. ConfigError that says what to
/// change. Makes the folder of --checkpoint; changes nothing else. Tells on standard error what
/// cannot be made sure of.
[[nodiscard]] std::shared_ptr<RunOutputs> open_outputs(const Settings& settings);

}  // namespace tessera::tools
