#pragma once

#include <string>

#include "tools/options/settings.hpp"

namespace tessera::tools {

/// Whether `strategy` gathers parameters around their use, so that prefetch and resharding matter.
[[nodiscard]] bool gathers(Strategy strategy);

/// "prefetch 1, resharded after-backward", for people.
[[nodiscard]] std::string describe_resharding(const Settings& settings);

/// " --prefetch 1 --reshard after-backward", as a user would type it.
[[nodiscard]] std::string resharding_words(const Settings& settings);

}  // namespace tessera::tools
