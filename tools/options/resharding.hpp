#pragma once

#include <string>
#include <vector>

#include "tessera/engine/sharded_model.hpp"
#include "tools/options/settings.hpp"

namespace tessera::tools {

/// Whether `strategy` gathers parameters around their use, so that prefetch and resharding matter.
[[nodiscard]] bool gathers(Strategy strategy);

/// ConfigError if an option was typed that concerns gathering, and none of `strategies` gathers.
void check_resharding(const Settings& settings, const std::vector<Strategy>& strategies);

/// Gives the options to a strategy that gathers; the others of a comparison go without.
void set_resharding(const Settings& settings, ModelOptions& options);

/// "prefetch 1, resharded after-backward", for people.
[[nodiscard]] std::string describe_resharding(const Settings& settings);

/// " --prefetch 1 --reshard after-backward", as a user would type it.
[[nodiscard]] std::string resharding_words(const Settings& settings);

}  // namespace tessera::tools
