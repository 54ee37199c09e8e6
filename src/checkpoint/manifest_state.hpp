#pragma once

#include <map>
#include <string>

#include "checkpoint/manifest.hpp"
#include "engine/model/training_state.hpp"
#include "tessera/engine/model_options.hpp"

namespace tessera::checkpoint {

/// Manifest::state: the counters, and what identifies the optimizer.
[[nodiscard]] std::map<std::string, std::string> manifest_state(
    const engine::TrainingState& state, const ModelOptions& options,
    const engine::StateCounters& counters);

/// Throws FormatError with `path`, the manifest's, and the counter that is missing or no number.
void check_counters(const std::string& path, const Manifest& manifest);

/// The counters that manifest_state wrote, for a model with `options`. The loss scale continues if
/// both are dynamic; otherwise it is the initial one of `options`.
[[nodiscard]] engine::StateCounters counters_of(const Manifest& manifest,
                                                const ModelOptions& options);

/// The format of the moments among the tensors of a model: "fp32", "bf16", "int8"; "none" if there
/// are none.
[[nodiscard]] std::string moments_of(const engine::TrainingState& state);

}  // namespace tessera::checkpoint
