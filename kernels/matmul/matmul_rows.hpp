#pragma once

#include <cstdint>

#include "kernels/matmul/matmul.hpp"

namespace tessera::kernels {

/// oneDNN computes products with a vector in orders that depend on the vector's place.
inline constexpr std::int64_t kLeastColumns = 2;

/// Rows of a product, cut into pieces for oneDNN: each piece packs B again, so pieces are large
/// enough to make that cheap, and small enough to have several to distribute among threads.
struct RowPieces {
  explicit RowPieces(const MatMul& product);
  std::int64_t rows;
  std::int64_t count;
};

/// Whether oneDNN is worth its calls for products of these sizes: below, calling it and compiling a
/// product for every m cost more than they save. A row's bits must not depend on m, so neither does
/// this.
[[nodiscard]] bool is_large_enough_for_onednn(std::int64_t n, std::int64_t k) noexcept;

/// Computes rows [first, first + rows) of `product` with oneDNN, at once on the calling thread.
/// k is not zero, n at least kLeastColumns. The bits of a row depend on n, k, dtypes,
/// transpositions, `write`, the processor and TESSERA_CPU alone, whichever rows are computed
/// together and wherever they lie.
///
/// oneDNN chooses one of several kernels, each with an order of sums of its own. Tried with 2.6.3
/// (tests/kernels/matmul_rows_test.cpp), the kernel changes with gaps between the rows of A or C,
/// with m where a plain A has gaps, and always for a single row. It is therefore given
///
///   a transposed A of fp32, whose cut rows have gaps:  always with gaps
///   every other A, and its C:                          always without gaps
///   a single row:                                      with a second row of zeros
///
/// What lies otherwise is copied.
///
/// Memory: the calling thread keeps the copies: at most 384 k bytes for a transposed A of bf16,
///         76 k for one of fp32 with at most 3 columns, and 1 MiB or two rows each for A and C with
///         gaps.
/// Errors: DeviceError if oneDNN fails.
void multiply_rows_with_onednn(const MatMul& product, std::int64_t first, std::int64_t rows);

}  // namespace tessera::kernels
