#pragma once

#include "c/errors.hpp"
#include "c/parameter_info.hpp"
#include "tessera/checkpoint/weights.hpp"

namespace tessera::c {

/// The name of a parameter in files: the result of `name`, or "unit.name" without it.
[[nodiscard]] inline WeightName weight_name(Call call, tessera_name_fn name, void* user) {
  if (name == nullptr) {
    return [](const ParameterInfo& parameter) { return parameter.full_name(); };
  }
  return [=](const ParameterInfo& parameter) {
    const char* const text = name(&CParameterInfo{parameter}.info(), user);
    call.require(text, "the name that the callback returned");
    return std::string{text};
  };
}

}  // namespace tessera::c
