#pragma once

#include <c10/core/ScalarType.h>

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace tessera::torch {

/// libtorch's element types and their names in safetensors files.
inline constexpr std::array<std::pair<c10::ScalarType, std::string_view>, 10> kSafetensorsDtypes{
    {{c10::ScalarType::Double, "F64"},
     {c10::ScalarType::Float, "F32"},
     {c10::ScalarType::BFloat16, "BF16"},
     {c10::ScalarType::Half, "F16"},
     {c10::ScalarType::Long, "I64"},
     {c10::ScalarType::Int, "I32"},
     {c10::ScalarType::Short, "I16"},
     {c10::ScalarType::Char, "I8"},
     {c10::ScalarType::Byte, "U8"},
     {c10::ScalarType::Bool, "BOOL"}}};

/// Returns the name of `type`; empty if the files have none.
[[nodiscard]] inline std::string safetensors_dtype(c10::ScalarType type) {
  for (const auto& [ours, name] : kSafetensorsDtypes) {
    if (ours == type) { return std::string{name}; }
  }
  return {};
}

/// Returns the type with this name, if libtorch has it.
[[nodiscard]] inline std::optional<c10::ScalarType> type_of_safetensors(std::string_view name) {
  for (const auto& [type, theirs] : kSafetensorsDtypes) {
    if (theirs == name) { return type; }
  }
  return {};
}

}  // namespace tessera::torch
