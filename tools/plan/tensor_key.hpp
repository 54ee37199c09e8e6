#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "tools/options/settings.hpp"

namespace tessera::tools {

/// A PlanOptions::tensor_key: the sizes of all that the places along `tensor` divide, and whether a
/// place is the first or the last, with duties of its own.
using TensorKey = std::function<std::string(int tensor)>;

/// The key of a GPT of `config`, trained with `settings`; empty without ranks along `tensor`.
[[nodiscard]] TensorKey gpt_tensor_key(const Settings& settings, const nn::DecoderConfig& config);
/// The key of a stack of `units` equal units that have `parameters` parameters together.
[[nodiscard]] TensorKey stack_tensor_key(const Settings& settings, std::int64_t parameters,
                                         std::int64_t units);

}  // namespace tessera::tools
