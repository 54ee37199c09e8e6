#pragma once

#include "kernels/matmul/matmul.hpp"

namespace tessera::kernels {

/// C in blocks of at most so many rows and columns, each computed by itself from parts of A and B
/// that were converted to fp32. The grid depends on the sizes alone.
inline constexpr std::int64_t kBlockRows = 192;
inline constexpr std::int64_t kBlockColumns = 384;

[[nodiscard]] std::int64_t block_count(const MatMul& product) noexcept;

/// Computes block `index`, counted row by row, now, on the calling thread. A and B are converted
/// for 256 of k at a time, summed up in fp32, and C is rounded once.
void multiply_block(const MatMul& product, std::int64_t index);

}  // namespace tessera::kernels
