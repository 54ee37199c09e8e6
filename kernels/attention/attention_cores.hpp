#pragma once

#include "kernels/attention/attention.hpp"

namespace tessera::kernels::cuda {

/// Heads of more elements are for the kernels in fp32.
inline constexpr std::int64_t kMostCoresHeadSize = 128;

/// Whether attention is computed on tensor cores by kernels of our own, where it is not cuDNN's:
/// bf16 and fp16, head sizes of up to 128, on devices of compute capability 8.0 and later.
[[nodiscard]] bool cores_compute(const AttentionShape& shape, DType dtype, Stream stream);

/// Attention as its header says. Products are of 16-bit numbers and are summed in fp32. What is
/// rounded to the dtype besides the results: probabilities relative to the largest one so far
/// (forward) or as they are (backward), before dropout scales them, when they are multiplied by
/// values or by dy; in backward gradients of scores before they are scaled. In fp16 such a gradient
/// overflows where it exceeds 65504: the gradients are then not finite, as loss scaling looks for.
void cores_attention_forward(const AttentionForward& args, Stream stream);
void cores_attention_backward(const AttentionBackward& args, Stream stream);

}  // namespace tessera::kernels::cuda
