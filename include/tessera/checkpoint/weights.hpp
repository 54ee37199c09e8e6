#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "tessera/engine/sharded_model.hpp"

namespace tessera {

/// The name a parameter has in the file.
using WeightName = std::function<std::string(const ParameterInfo&)>;

/// *Collective.* Rank 0 writes every parameter of `model` to `path` (safetensors, fp32); gathers
/// one unit at a time.
void save_weights(ShardedModel& model, const std::filesystem::path& path, const WeightName& name);

/// An initialiser that reads each rank's part from the file at `path`. FormatError if a parameter
/// is missing or has another shape, when it is asked for.
[[nodiscard]] Initializer weights_from(const std::filesystem::path& path, WeightName name);

}  // namespace tessera
