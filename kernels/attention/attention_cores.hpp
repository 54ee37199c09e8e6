#pragma once

#include "kernels/attention/attention.hpp"

namespace tessera::kernels::cuda {

/// Whether attention is computed on tensor cores by kernels of our own, where it is not cuDNN's:
/// bf16 and fp16, head sizes of up to 128. Larger ones are for the kernels in fp32.
[[nodiscard]] constexpr bool cores_compute(const AttentionShape& shape, DType dtype) noexcept {
  return size_of(dtype) == 2 && shape.head_size <= 128;
}

/// Attention as its header says. Products are of 16-bit numbers and are summed in fp32. What is
/// rounded to the dtype besides the results: probabilities relative to the largest one so far
/// (forward) or as they are (backward), before dropout scales them, when they are multiplied by
/// values or by dy; in backward gradients of scores before they are scaled. In fp16 such a gradient
/// overflows where it exceeds 65504: the gradients are then not finite, as loss scaling looks for.
void cores_attention_forward(const AttentionForward& args, Stream stream);
void cores_attention_backward(const AttentionBackward& args, Stream stream);

}  // namespace tessera::kernels::cuda
