#pragma once

#include <vector>

#include "tessera/engine/model_options.hpp"
#include "tessera/world/world_options.hpp"
#include "tools/options/settings.hpp"

namespace tessera::tools {

/// What was typed, as the options of a rank. (Those of the optimizer: optimizer.hpp.)
[[nodiscard]] WorldOptions world_options(const Settings& settings);

/// What was typed, as the options of a model that is trained under `strategy`. What concerns other
/// strategies alone is left out: several may be compared.
[[nodiscard]] ModelOptions model_options(const Settings& settings, Strategy strategy);

/// Returns the mesh that a model of settled settings has under `strategy`.
[[nodiscard]] MeshShape mesh_of(const Settings& settings, Strategy strategy);

/// The strategies that were asked for: several, or one.
[[nodiscard]] std::vector<Strategy> strategies_of(const Settings& settings);

/// Asks the library whether what was typed can be had under `strategies` on each number of `ranks`.
/// Throws its ConfigError, which names the library's options (see option_words.hpp). What depends
/// on the units of the model comes from the plan that every command makes before it starts.
void check_with_library(const Settings& settings, const std::vector<Strategy>& strategies,
                        const std::vector<int>& ranks);

/// The same for options of gathering that were typed and have no effect under any of `strategies`.
void check_gathering(const Settings& settings, const std::vector<Strategy>& strategies);

}  // namespace tessera::tools
