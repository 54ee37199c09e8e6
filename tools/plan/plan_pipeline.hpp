#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "tools/options/settings.hpp"

namespace tessera::tools {

/// The schedule of a mesh with `pipe`, assuming equal stages whose backward pass takes twice as
/// long as their forward pass: its name, bubble, what each rank has in flight, and each rank's
/// actions over time, in units of a stage's forward pass.
[[nodiscard]] nlohmann::ordered_json pipeline_json(const Settings& settings);

/// The same in one line, without the actions; empty without `pipe`.
[[nodiscard]] std::string pipeline_line(const Settings& settings);

}  // namespace tessera::tools
