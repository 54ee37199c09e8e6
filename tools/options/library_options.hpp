#pragma once

#include <vector>

#include "tessera/engine/model_options.hpp"
#include "tessera/world/world_options.hpp"
#include "tools/options/settings.hpp"

namespace tessera::tools {

/// The options of a rank's World, without the optimizer's (optimizer.hpp).
[[nodiscard]] WorldOptions world_options(const Settings& settings);

/// The options of a model that is trained under `strategy`. It ignores options that concern only
/// other strategies: several may be compared.
[[nodiscard]] ModelOptions model_options(const Settings& settings, Strategy strategy);

/// Returns the mesh that a model of settled settings has under `strategy`.
[[nodiscard]] MeshShape mesh_of(const Settings& settings, Strategy strategy);

/// The strategies that the user asked for: several, or one.
[[nodiscard]] std::vector<Strategy> strategies_of(const Settings& settings);

/// Asks the library whether these settings are possible under `strategies` on each number of
/// `ranks`. Throws the library's ConfigError, which names the library's options (see
/// option_words.hpp). Errors that depend on the model's units come from the plan that every command
/// makes before it starts.
void check_with_library(const Settings& settings, const std::vector<Strategy>& strategies,
                        const std::vector<int>& ranks);

/// The same for typed options of gathering that have no effect under any of `strategies`.
void check_gathering(const Settings& settings, const std::vector<Strategy>& strategies);

}  // namespace tessera::tools
