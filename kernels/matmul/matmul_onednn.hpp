#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/matmul/matmul.hpp"

namespace tessera::kernels {

/// Multiply-adds below which calling oneDNN, and compiling a product once, cost more than they
/// save.
inline constexpr std::int64_t kLeastForOneDnn = 128 * 1024;

/// Whether this build has oneDNN, oneDNN computes products of two matrices of `dtype` on this
/// processor, and it was measured to be faster there. Results have fp32 or `dtype`.
[[nodiscard]] bool onednn_is_faster(DType dtype);
/// Whether oneDNN computes such products at all.
[[nodiscard]] bool onednn_computes(DType dtype);

/// Computes the product at once on the calling thread, whose OpenMP settings are unchanged on
/// return. No size is zero. The order of sums depends on everything but the addresses.
///
/// Memory: the calling thread keeps its last 64 products (oneDNN keeps 1024 for the process), and
///         one scratchpad as large as the largest needed; both end with the thread.
/// Errors: DeviceError.
void onednn_matmul(const MatMul& product);

/// The part of the scratchpad that the product needs.
[[nodiscard]] std::size_t onednn_scratch_bytes(const MatMul& product);

}  // namespace tessera::kernels
