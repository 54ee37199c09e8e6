#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/matmul/matmul.hpp"

namespace tessera::kernels {

/// Whether this build has oneDNN, oneDNN computes products of two matrices of `dtype` on this
/// processor, and it was measured to be faster there, or on the processors that TESSERA_CPU names.
/// Results have fp32 or `dtype`.
[[nodiscard]] bool onednn_is_faster(DType dtype);
/// Whether oneDNN computes such products at all. Errors of both: ConfigError if TESSERA_CPU is
/// wrong, or comes too late for oneDNN.
[[nodiscard]] bool onednn_computes(DType dtype);

/// Computes the product at once on the calling thread, whose OpenMP settings are unchanged on
/// return. No size is zero. The order of sums depends on everything but the addresses; see
/// matmul_rows.hpp for one that does not depend on m.
///
/// Memory: the calling thread keeps its last 64 products (oneDNN keeps 1024 for the process), and
///         one scratchpad as large as the largest needed; both end with the thread.
/// Errors: DeviceError.
void onednn_matmul(const MatMul& product);

/// The part of the scratchpad that the product needs.
[[nodiscard]] std::size_t onednn_scratch_bytes(const MatMul& product);

}  // namespace tessera::kernels
