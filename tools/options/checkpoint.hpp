#pragma once

#include <string>

#include "tessera/checkpoint/checkpointer.hpp"
#include "tools/options/settings.hpp"

namespace tessera::tools {

/// Whether the run continues from a checkpoint.
[[nodiscard]] bool resumes(const Settings& settings);

/// Whether checkpoints are written while the run makes steps. The save at its end does not count.
[[nodiscard]] bool saves_beside_steps(const Settings& settings);

/// The CheckpointerOptions for `settings` with a `checkpoint` folder.
[[nodiscard]] CheckpointerOptions checkpointer_options(const Settings& settings);

/// ConfigError for typed checkpoint options that have no effect or contradict each other.
void check_checkpoint(const Settings& settings);

/// " --checkpoint DIR --checkpoint-every 100", as a user would type it; empty without a folder.
[[nodiscard]] std::string checkpoint_words(const Settings& settings);

}  // namespace tessera::tools
