#pragma once

#include <map>
#include <string>

#include "checkpoint/manifest.hpp"
#include "engine/model/training_state.hpp"
#include "tessera/engine/model_options.hpp"

namespace tessera {

/// Manifest::state: the counters, and what the optimizer is.
[[nodiscard]] std::map<std::string, std::string> manifest_state(
    const engine::TrainingState& state, const ModelOptions& options,
    const engine::StateCounters& counters);

/// The counters that manifest_state has written, for a model with `options`: its loss scale goes on
/// if both are dynamic, and is the one that `options` begin with otherwise. FormatError that names
/// the file in `folder` and what is missing or no number.
[[nodiscard]] engine::StateCounters counters_of(const Manifest& manifest,
                                                const ModelOptions& options,
                                                const std::string& folder);

/// The format of the moments among the tensors of a model: "fp32", "bf16", "int8"; "none" if there
/// are none.
[[nodiscard]] std::string moments_of(const engine::TrainingState& state);

}  // namespace tessera
