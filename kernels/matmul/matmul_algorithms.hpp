#pragma once

#include <string_view>
#include <vector>

#include "kernels/matmul/matmul.hpp"

namespace tessera::kernels {

/// Algorithms of the CPU's matmul. Each cuts a product into pieces for its threads.
enum class MatMulAlgorithm : std::uint8_t {
  eigen,    ///< fp32 in place, with add_matmul
  onednn,   ///< oneDNN's product in the dtype itself
  convert,  ///< blocks converted to fp32, multiplied, and rounded: for any dtypes
};

[[nodiscard]] std::string_view to_string(MatMulAlgorithm algorithm) noexcept;

/// The algorithms that can compute `product` in this build on this processor. matmul takes the
/// first, the fastest by measurement (docs/benchmarks/cpu.md). The list depends only on n, k,
/// dtypes, processor, TESSERA_CPU and build (and on whether m is zero).
[[nodiscard]] std::vector<MatMulAlgorithm> algorithms_of(const MatMul& product);

/// matmul with this algorithm, one of `algorithms_of(product)`.
void matmul_with(MatMulAlgorithm algorithm, const MatMul& product, Stream stream);

}  // namespace tessera::kernels
