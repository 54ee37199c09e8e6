#pragma once

#include <nlohmann/json.hpp>

#include "tools/options/settings.hpp"
#include "tools/train/recording.hpp"

namespace tessera::tools {

/// What the places along `pipe` did in the recorded step, as the page of a report draws it: by
/// place the actions of its schedule, each from its first scope to its last, in microseconds. Null
/// without `pipe`, where the recording lacks a place, and where its scopes are not those of the
/// schedule.
[[nodiscard]] nlohmann::ordered_json recorded_pipeline(const Settings& settings,
                                                       const Recording& recording,
                                                       Strategy strategy);

}  // namespace tessera::tools
