#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "tessera/engine/sharded_model.hpp"

namespace tessera {

/// The name a parameter has in the file.
using WeightName = std::function<std::string(const ParameterInfo&)>;

/// *Collective.* Rank 0 writes every parameter of `model` to `path` (safetensors, fp32), making
/// its folder if need be; gathers one unit at a time. Of a model that computes in bf16 or fp16
/// these are the rounded parameters, not their fp32 masters. If rank 0 cannot, the call fails on
/// every rank with rank 0's reason, after the last gather; what was at `path` stays.
void save_weights(ShardedModel& model, const std::filesystem::path& path, const WeightName& name);

/// An initialiser that reads each rank's part from the file at `path`. FormatError if the file
/// cannot be read, at once; if a parameter is missing or has another shape, when it is asked for.
/// May be shared between ranks that are threads, which then read one after the other.
[[nodiscard]] Initializer weights_from(const std::filesystem::path& path, WeightName name);

}  // namespace tessera
