#pragma once

#include <nlohmann/json.hpp>

#include "tools/options/settings.hpp"
#include "tools/train/recording.hpp"

namespace tessera::tools {

/// The actions of each place along `pipe` in the recorded step, for the page of a report: each
/// action of the schedule from its first scope to its last, in microseconds. Null without `pipe`,
/// if the recording lacks a place, or if its scopes do not match the schedule.
[[nodiscard]] nlohmann::ordered_json recorded_pipeline(const Settings& settings,
                                                       const Recording& recording,
                                                       Strategy strategy);

}  // namespace tessera::tools
