#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "tessera/profile/step_time.hpp"
#include "tools/options/settings.hpp"

namespace tessera::tools {

/// ConfigError for a time that cannot be planned: a profile that cannot be read or is of another
/// kind of machine, threads that share a rank's work, --params without the tokens of a step.
/// Nothing where none is asked for.
void check_time(const Settings& settings);

/// The machine of --time; empty if none was given. ConfigError for one that cannot be read.
[[nodiscard]] std::optional<MachineProfile> profile_of(const Settings& settings);

/// The time of a step of `settings` under `strategy`: the run itself on the meta device for some
/// steps, with a log of what it enqueues, on the machine that `profile` describes.
[[nodiscard]] StepTime plan_time(const Settings& settings, Strategy strategy,
                                 const MachineProfile& profile);

/// Prints the time of a step under each of `strategies` and adds it to `json`, the document of
/// plan --json for the same strategies, if --time was given.
void plan_times(const Settings& settings, const std::vector<Strategy>& strategies,
                nlohmann::ordered_json& json);

}  // namespace tessera::tools
