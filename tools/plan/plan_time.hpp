#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "tessera/profile/step_time.hpp"
#include "tools/options/settings.hpp"

namespace tessera::tools {

/// ConfigError for a time that cannot be planned: a profile that cannot be read or describes
/// another kind of machine, threads that share a rank's work, --params without the tokens of a
/// step. Does nothing without --time.
void check_time(const Settings& settings);

/// The profile of --time; empty without one. ConfigError if it cannot be read.
[[nodiscard]] std::optional<MachineProfile> profile_of(const Settings& settings);

/// The time of a step of `settings` under `strategy` on the machine that `profile` describes: runs
/// some steps on the meta device, with a log of what they enqueue.
[[nodiscard]] StepTime plan_time(const Settings& settings, Strategy strategy,
                                 const MachineProfile& profile);

/// With --time, prints the time of a step under each of `strategies` and adds it to `json`, the
/// document of plan --json for the same strategies.
void plan_times(const Settings& settings, const std::vector<Strategy>& strategies,
                nlohmann::ordered_json& json);

}  // namespace tessera::tools
