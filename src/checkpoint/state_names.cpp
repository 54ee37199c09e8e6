#include "checkpoint/state_names.hpp"

#include <fmt/format.h>

#include "checkpoint/safetensors_header.hpp"

namespace tessera::checkpoint {

using engine::StateFormat;
using engine::StateKind;

std::string weight_name(const ParameterInfo& parameter, const WeightName& name) {
  return name ? name(parameter) : parameter.full_name();
}

std::string state_name(const std::string& weight, StateKind kind, int index) {
  switch (kind) {
    case StateKind::weight:
      return weight;
    case StateKind::master:
      return weight + ".master";
    case StateKind::remainder:
      return weight + ".remainder";
    case StateKind::moment:
      return fmt::format("{}.moment_{}", weight, index);
    case StateKind::scales:
      return fmt::format("{}.moment_{}.scales", weight, index);
  }
  return {};
}

std::string_view role_of(StateKind kind) noexcept {
  switch (kind) {
    case StateKind::weight:
      return "weight";
    case StateKind::master:
      return "master";
    case StateKind::remainder:
      return "remainder";
    case StateKind::moment:
      return "moment";
    case StateKind::scales:
      return "scales";
  }
  return {};
}

std::string_view dtype_name(StateFormat format) noexcept {
  switch (format) {
    case StateFormat::fp32:
      return "F32";
    case StateFormat::bf16:
      return "BF16";
    case StateFormat::fp16:
      return "F16";
    case StateFormat::u16:
      return "U16";
    case StateFormat::u8:
      return "U8";
  }
  return {};
}

std::string_view dtype_name(DType dtype) noexcept {
  switch (dtype) {
    case DType::fp32:
      return "F32";
    case DType::bf16:
      return "BF16";
    case DType::fp16:
      return "F16";
    case DType::fp64:
      return "F64";
  }
  return {};
}

std::uint64_t chunk_bytes_of(std::string_view role, std::string_view dtype) {
  return dtype_bytes(dtype).value_or(0) * (role == "scales" ? 1 : kChunkElems);
}

bool may_be(std::string_view role, std::string_view dtype) {
  if (role == "weight") { return dtype == "F32" || dtype == "BF16" || dtype == "F16"; }
  if (role == "moment") { return dtype == "F32" || dtype == "BF16" || dtype == "U8"; }
  if (role == "remainder") { return dtype == "U16"; }
  return role == "extra" || dtype == "F32";
}

CheckpointTensor checkpoint_tensor(const engine::StateTensorInfo& info, const WeightName& name) {
  const bool scales = info.kind == StateKind::scales;
  return {.name = state_name(weight_name(*info.parameter, name), info.kind, info.index),
          .dtype = std::string{dtype_name(info.format)},
          .shape = scales ? Shape{info.elems} : info.parameter->shape,
          .chunk_bytes = chunk_bytes_of(role_of(info.kind), dtype_name(info.format))};
}

}  // namespace tessera::checkpoint
