#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "tessera/engine/sharded_model.hpp"

namespace tessera {

/// A function that returns the name of a parameter's tensor in files.
using WeightName = std::function<std::string(const ParameterInfo&)>;

/// *Collective.* Writes every parameter of `model` to `path` (safetensors, fp32) on rank 0, and
/// makes the file's folder if necessary. Units are gathered one at a time. For a model that
/// computes in bf16 or fp16 the file has the rounded parameters, not their fp32 masters. If rank 0
/// fails, the call fails on every rank with rank 0's reason, after the last gather, and an existing
/// file does not change.
void save_weights(ShardedModel& model, const std::filesystem::path& path, const WeightName& name);

/// Returns an initialiser that reads each rank's part from the file at `path`. Throws FormatError
/// at once if the file cannot be read or is of one machine's part of a checkpoint; the initialiser
/// throws it for a parameter that is missing or has another shape. Ranks that are threads may share
/// it; they then read one after the other.
[[nodiscard]] Initializer weights_from(const std::filesystem::path& path, WeightName name);

}  // namespace tessera
