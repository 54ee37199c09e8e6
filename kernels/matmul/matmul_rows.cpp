#include "kernels/matmul/matmul_rows.hpp"

#include <algorithm>
#include <cstring>

#include "kernels/matmul/matmul_onednn.hpp"
#include "kernels/support/scratch.hpp"
#include "tessera/base/math.hpp"

namespace tessera::kernels {
namespace {

constexpr std::int64_t kLeastElemsOfB = 4096;
constexpr std::int64_t kLeastRows = 2;
constexpr std::int64_t kGap = 16;
// Copies of A and C that are as large as a second-level cache, or one row.
constexpr std::int64_t kMostCopied = 256 * 1024;

bool has_gaps(const MatMul& p) {
  return p.transpose_a == Transpose::yes && p.a.dtype == DType::fp32;
}

std::int64_t stored_columns(const MatMul& p) {
  return p.transpose_a == Transpose::yes ? p.m : p.k;
}

/// A matrix in memory: `rows` stored rows of `columns`, `stride` elements apart.
struct Stored {
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t stride;
};

void copy_rows(Values to, std::int64_t to_stride, ConstValues from, const Stored& matrix) {
  const std::size_t bytes = static_cast<std::size_t>(matrix.columns) * size_of(from.dtype);
  for (std::int64_t r = 0; r < matrix.rows; ++r) {
    std::memcpy(to.at(r * to_stride).data, from.at(r * matrix.stride).data, bytes);
  }
}

/// A copy of `from` in `scratch`, in `rows` rows `stride` apart; what is beyond the matrix is zero.
Values padded_copy(Scratch& scratch, ConstValues from, const Stored& matrix, std::int64_t rows,
                   std::int64_t stride) {
  const std::size_t bytes = static_cast<std::size_t>(rows * stride) * size_of(from.dtype);
  const Values copy{scratch.reserve(bytes), from.dtype};
  if (rows > matrix.rows || stride > matrix.columns) { std::memset(copy.data, 0, bytes); }
  copy_rows(copy, stride, from, matrix);
  return copy;
}

/// Replaces the piece's A by a copy unless it lies as has_gaps says.
void place_a(MatMul& piece, std::int64_t rows) {
  thread_local Scratch scratch;
  const bool transposed = piece.transpose_a == Transpose::yes;
  const Stored a =
      transposed ? Stored{piece.k, rows, piece.a_stride} : Stored{rows, piece.k, piece.a_stride};
  const std::int64_t columns = stored_columns(piece);
  const bool fits = piece.m == rows && (a.stride > columns) == has_gaps(piece);
  if (fits) { return; }
  piece.a_stride = has_gaps(piece) ? columns + kGap : columns;
  piece.a = padded_copy(scratch, piece.a, a, transposed ? piece.k : piece.m, piece.a_stride);
}

}  // namespace

RowPieces::RowPieces(const MatMul& p) {
  const bool large = p.a.dtype == DType::bf16 && p.transpose_a == Transpose::no;
  std::int64_t most = large ? 384 : 192;
  if (has_gaps(p)) {
    // Pieces of a whole A have gaps, so that it need not be copied.
    if (p.m == p.a_row_elems() && p.m >= 2 * kLeastRows && p.m < most) {
      rows = ceil_div(p.m, std::int64_t{2});
      count = 2;
      return;
    }
  } else {
    if (p.c_row_elems() > p.n) { most = std::min(most, std::max(kLeastRows, kMostCopied / p.n)); }
    if (p.transpose_a == Transpose::no && p.a_row_elems() > p.k) {
      most = std::min(most, std::max(kLeastRows, kMostCopied / p.k));
    }
  }
  const std::int64_t wanted = std::max(kLeastRows, most * 2 / 3);
  const std::int64_t pieces = std::max<std::int64_t>(1, (p.m + wanted / 2) / wanted);
  rows = ceil_div(p.m, pieces);
  if (rows > 32 && most >= 192) { rows = round_up(rows, std::int64_t{32}); }
  count = ceil_div(p.m, rows);
}

bool is_large_enough_for_onednn(std::int64_t n, std::int64_t k) noexcept {
  return n >= kLeastColumns && n * k >= kLeastElemsOfB;
}

void multiply_rows_with_onednn(const MatMul& p, std::int64_t first, std::int64_t rows) {
  thread_local Scratch scratch;
  MatMul piece = p;
  piece.m = std::max(rows, kLeastRows);
  piece.a = p.a.at(p.transpose_a == Transpose::yes ? first : first * p.a_row_elems());
  piece.a_stride = p.a_row_elems();
  place_a(piece, rows);
  const Values c = p.c.at(first * p.c_row_elems());
  const Stored stored_c{rows, p.n, p.c_row_elems()};
  piece.c = c;
  piece.c_stride = stored_c.stride;
  const bool in_place = piece.m == rows && (has_gaps(p) || stored_c.stride == p.n);
  if (!in_place) {
    piece.c_stride = p.n;
    piece.c = padded_copy(scratch, c, stored_c, piece.m, p.n);
  }
  onednn_matmul(piece);
  if (!in_place) { copy_rows(c, stored_c.stride, piece.c, {rows, p.n, p.n}); }
}

}  // namespace tessera::kernels
