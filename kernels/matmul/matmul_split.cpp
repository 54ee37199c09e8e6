#include "kernels/matmul/matmul_split.hpp"

#include <algorithm>

#include "tessera/base/math.hpp"

namespace tessera::kernels {
namespace {

// Common multiples of the blocks of every variant: 4 rows of 24 columns with AVX2 and of 48 with
// AVX-512 in Eigen 3.4.
constexpr std::int64_t kRowUnit = 8;
constexpr std::int64_t kColumnUnit = 48;
// Multiply-adds that are worth a thread: some ten microseconds.
constexpr std::int64_t kLeastWork = 512 * 1024;
// Every piece first copies its part of A and B into blocks: per element of a row or column this
// costs as much as this many multiply-adds.
constexpr std::int64_t kPackCost = 16;

/// `size` cut into at most `pieces` multiples of `unit`; the last also takes a remainder below
/// `unit`.
struct Cut {
  std::int64_t piece;
  std::int64_t pieces;
  std::int64_t largest;
};

Cut cut(std::int64_t size, std::int64_t pieces, std::int64_t unit) {
  const std::int64_t piece = round_up(ceil_div(size, pieces), unit);
  const std::int64_t count = ceil_div(std::max<std::int64_t>(size - unit + 1, 1), piece);
  return {piece, count, std::max(std::min(piece, size), size - (count - 1) * piece)};
}

}  // namespace

MatMulSplit split_matmul(std::int64_t m, std::int64_t n, std::int64_t k, int threads) {
  MatMulSplit best{1, 1, m, n};
  // A product with a vector uses another code path.
  if (m < 2 || n < 2 || m * n * k < 2 * kLeastWork) { return best; }
  const auto cost = [](std::int64_t rows, std::int64_t columns) {
    return rows * columns + kPackCost * (rows + columns);
  };
  std::int64_t least = cost(m, n);
  for (std::int64_t rows = 1; rows <= threads; ++rows) {
    const Cut down = cut(m, rows, kRowUnit);
    const Cut across = cut(n, threads / rows, kColumnUnit);
    if (cost(down.largest, across.largest) >= least) { continue; }
    least = cost(down.largest, across.largest);
    best = {down.pieces, across.pieces, down.piece, across.piece};
  }
  return best;
}

StridedMatMul piece_of(const StridedMatMul& product, const MatMulSplit& split, std::int64_t index) {
  const std::int64_t row = index / split.columns;
  const std::int64_t column = index % split.columns;
  const std::int64_t first_row = row * split.piece_rows;
  const std::int64_t first_column = column * split.piece_columns;
  StridedMatMul piece = product;
  piece.m = row + 1 == split.rows ? product.m - first_row : split.piece_rows;
  piece.n = column + 1 == split.columns ? product.n - first_column : split.piece_columns;
  piece.a.data += product.transpose_a == Transpose::yes ? first_row : first_row * product.a.stride;
  piece.b.data +=
      product.transpose_b == Transpose::yes ? first_column * product.b.stride : first_column;
  piece.c.data += first_row * product.c.stride + first_column;
  return piece;
}

}  // namespace tessera::kernels
