#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tools/measure/checkpoints.hpp"
#include "tools/measure/comparison.hpp"
#include "tools/measure/features.hpp"
#include "tools/measure/recording.hpp"
#include "tools/measure/scaling.hpp"
#include "tools/measure/step.hpp"

namespace tessera::bench {

using Json = nlohmann::ordered_json;

/// {"min": ..., "median": ..., "all": [...]}.
[[nodiscard]] Json json_of(const Series& series);
[[nodiscard]] Json json_of(const Comparison& comparison);
[[nodiscard]] Json json_of(const StrategySteps& steps);
[[nodiscard]] Json json_of(const StepResult& result);
[[nodiscard]] Json json_of(const std::vector<ScalingPoint>& points);
[[nodiscard]] Json json_of(const std::vector<RecordingCost>& costs);
[[nodiscard]] Json json_of(const std::vector<FeatureCosts>& costs);
[[nodiscard]] Json json_of(const CheckpointTimes& times);
[[nodiscard]] Json json_of(const AsynchronousCost& cost);

}  // namespace tessera::bench
