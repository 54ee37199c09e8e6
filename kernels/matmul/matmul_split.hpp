#pragma once

#include <cstdint>

#include "kernels/matmul/matmul_strided.hpp"

namespace tessera::kernels {

/// C cut into a grid of pieces that are computed independently of each other. All pieces have
/// `piece_rows` x `piece_columns` elements, except that the last row and column of pieces take the
/// remainder.
struct MatMulSplit {
  std::int64_t rows = 1;     ///< pieces one below the other
  std::int64_t columns = 1;  ///< pieces side by side
  std::int64_t piece_rows = 0;
  std::int64_t piece_columns = 0;

  [[nodiscard]] std::int64_t pieces() const noexcept { return rows * columns; }
};

/// The cut of an m x n result, of sums over k, that `threads` finish soonest; one piece if the
/// product is not worth a second thread.
///
/// An element's bits are the same in every cut. The product is computed in blocks of registers, and
/// the order of an element's sum depends on the kind of its block: full, or one of the narrower
/// ones at the right and lower edge. Pieces therefore start at multiples of a full block, and none
/// is so small that it would use another code path.
[[nodiscard]] MatMulSplit split_matmul(std::int64_t m, std::int64_t n, std::int64_t k, int threads);

/// Piece `index` of `product`, counted row by row.
[[nodiscard]] StridedMatMul piece_of(const StridedMatMul& product, const MatMulSplit& split,
                                     std::int64_t index);

}  // namespace tessera::kernels
