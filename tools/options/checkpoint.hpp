#pragma once

#include <string>

#include "tessera/checkpoint/checkpointer.hpp"
#include "tools/options/settings.hpp"

namespace tessera::tools {

/// Whether the run goes on from a checkpoint.
[[nodiscard]] bool resumes(const Settings& settings);

/// Whether checkpoints are written beside the steps. The only save of a run, at its end, is not.
[[nodiscard]] bool saves_beside_steps(const Settings& settings);

/// What was typed, as the options of a Checkpointer, for settings with a `checkpoint` folder.
[[nodiscard]] CheckpointerOptions checkpointer_options(const Settings& settings);

/// ConfigError for options of checkpoints that were typed and have no effect, or contradict each
/// other.
void check_checkpoint(const Settings& settings);

/// " --checkpoint DIR --checkpoint-every 100", as a user would type it; empty without a folder.
[[nodiscard]] std::string checkpoint_words(const Settings& settings);

}  // namespace tessera::tools
