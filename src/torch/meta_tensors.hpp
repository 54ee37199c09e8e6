#pragma once

#include <ATen/core/Tensor.h>

namespace tessera::torch {

/// Makes `tensor` use the memory, shape, dtype and device of `memory`, like `set_data`; one of the
/// two may be on the meta device, which `set_data` rejects. Every holder of the tensor sees the
/// change.
void set_memory(const at::Tensor& tensor, const at::Tensor& memory);

/// Returns a tensor like `tensor` without memory.
[[nodiscard]] at::Tensor meta_like(const at::Tensor& tensor);

/// Returns whether a MetaGuard lives on this thread.
[[nodiscard]] bool makes_meta_tensors() noexcept;

}  // namespace tessera::torch
