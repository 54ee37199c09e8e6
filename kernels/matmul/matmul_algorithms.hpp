#pragma once

#include <string_view>
#include <vector>

#include "kernels/matmul/matmul.hpp"

namespace tessera::kernels {

/// Algorithms of the CPU's matmul. Each cuts a product into pieces that its threads share out.
enum class MatMulAlgorithm : std::uint8_t {
  eigen,    ///< fp32 as it lies there, with add_matmul
  onednn,   ///< oneDNN's product of the dtype itself
  convert,  ///< blocks converted to fp32, multiplied, and rounded: any dtypes
};

[[nodiscard]] std::string_view to_string(MatMulAlgorithm algorithm) noexcept;

/// The algorithms that can compute `product` in this build on this processor. matmul takes the
/// first, the fastest by measurement (docs/benchmarks/cpu.md). Depends on sizes, dtypes, processor
/// and build alone.
[[nodiscard]] std::vector<MatMulAlgorithm> algorithms_of(const MatMul& product);

/// matmul with this algorithm, one of `algorithms_of(product)`.
void matmul_with(MatMulAlgorithm algorithm, const MatMul& product, Stream stream);

}  // namespace tessera::kernels
