#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/matmul/matmul.hpp"

namespace tessera::kernels {

/// Multiply-adds below which oneDNN's call, and compiling a product once, cost more than they save.
inline constexpr std::int64_t kLeastForOneDnn = 128 * 1024;

/// Whether oneDNN is in this build, computes products of two matrices of `dtype` on this processor,
/// and was measured to be the faster way there. Results: fp32, and `dtype`.
[[nodiscard]] bool onednn_is_faster(DType dtype) noexcept;
/// Whether it computes them at all.
[[nodiscard]] bool onednn_computes(DType dtype) noexcept;

/// The product, now, on the calling thread, whose OpenMP settings are left as they were. No size is
/// zero. The order of sums depends on everything but the addresses.
///
/// Memory: the calling thread keeps its last 64 products (oneDNN keeps 1024 for the process), and
///         one scratchpad as large as the largest needed; both end with the thread.
/// Errors: DeviceError.
void onednn_matmul(const MatMul& product);

/// What of the scratchpad the product needs.
[[nodiscard]] std::size_t onednn_scratch_bytes(const MatMul& product);

}  // namespace tessera::kernels
