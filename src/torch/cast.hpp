#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace tessera::torch {

/// Returns which of `values` a cast to `type` changes by more than rounding, empty if none:
/// fractions and values out of range that become integers, and finite values that become infinite.
/// The text is like "2 of its values, the first 2.5 at element 0, are not whole numbers in the
/// range of Long". `values` is contiguous and on the CPU.
[[nodiscard]] std::string lost_by_cast(const at::Tensor& values, at::ScalarType type);

}  // namespace tessera::torch
