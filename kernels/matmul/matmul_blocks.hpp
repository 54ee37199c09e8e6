#pragma once

#include "kernels/matmul/matmul.hpp"

namespace tessera::kernels {

/// C is cut into blocks of at most kBlockRows x kBlockColumns, each computed independently from
/// parts of A and B that were converted to fp32. The grid depends only on the sizes.
inline constexpr std::int64_t kBlockRows = 192;
inline constexpr std::int64_t kBlockColumns = 384;

[[nodiscard]] std::int64_t block_count(const MatMul& product) noexcept;

/// Computes block `index`, counted row by row, at once on the calling thread. A and B are converted
/// 256 elements of k at a time, summed in fp32, and C is rounded once.
void multiply_block(const MatMul& product, std::int64_t index);

}  // namespace tessera::kernels
