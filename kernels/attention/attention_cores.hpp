#pragma once

#include "kernels/attention/attention.hpp"

namespace tessera::kernels::cuda {

/// Whether our own tensor-core kernels compute attention of this shape where cuDNN does not: bf16
/// and fp16, head sizes of up to 128. Larger heads use the fp32 kernels.
[[nodiscard]] constexpr bool cores_compute(const AttentionShape& shape, DType dtype) noexcept {
  return size_of(dtype) == 2 && shape.head_size <= 128;
}

/// Attention as declared in its header. Products take 16-bit numbers and are summed in fp32.
/// Besides the results, two things are rounded to the dtype: probabilities, when they are
/// multiplied by values or by dy (relative to the largest one so far in forward, absolute in
/// backward, before dropout scales them); and, in backward, gradients of scores before they are
/// scaled. In fp16 such a gradient overflows above 65504: the gradients are then not finite, which
/// loss scaling detects.
void cores_attention_forward(const AttentionForward& args, Stream stream);
void cores_attention_backward(const AttentionBackward& args, Stream stream);

}  // namespace tessera::kernels::cuda
