#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "checkpoint/layout.hpp"
#include "engine/model/training_state.hpp"
#include "tessera/base/dtype.hpp"
#include "tessera/checkpoint/weights.hpp"

namespace tessera::checkpoint {

/// The name of a parameter's weight in the files: the result of `name`, or "unit.name".
[[nodiscard]] std::string weight_name(const ParameterInfo& parameter, const WeightName& name);

/// The name of an array that belongs to the weight `weight`: "weight.master",
/// "weight.moment_0.scales". The weight's own name is `weight`.
[[nodiscard]] std::string state_name(const std::string& weight, engine::StateKind kind, int index);

/// "weight", "master", "remainder", "moment", "scales".
[[nodiscard]] std::string_view role_of(engine::StateKind kind) noexcept;

/// The dtype as in safetensors: "F32", "BF16", "F16", "U16", "U8".
[[nodiscard]] std::string_view dtype_name(engine::StateFormat format) noexcept;
/// The dtype as in safetensors: "F32", "BF16", "F16", "F64".
[[nodiscard]] std::string_view dtype_name(DType dtype) noexcept;

/// The array of a state tensor in a checkpoint.
[[nodiscard]] CheckpointTensor checkpoint_tensor(const engine::StateTensorInfo& info,
                                                 const WeightName& name);

/// Elements of a chunk of TensorSums.
inline constexpr std::uint64_t kChunkElems = 64;

/// The bytes of a chunk of TensorSums in a tensor of `role`: those of 64 elements, or of one scale.
/// 0 for an unknown dtype.
[[nodiscard]] std::uint64_t chunk_bytes_of(std::string_view role, std::string_view dtype);

/// Whether tensors of `role` may be of `dtype`.
[[nodiscard]] bool may_be(std::string_view role, std::string_view dtype);

}  // namespace tessera::checkpoint
