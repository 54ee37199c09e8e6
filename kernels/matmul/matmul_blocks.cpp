#include "kernels/matmul/matmul_blocks.hpp"

#include <algorithm>

#include "kernels/matmul/matmul_onednn.hpp"
#include "kernels/matmul/matmul_rows.hpp"
#include "kernels/matmul/matmul_strided.hpp"
#include "kernels/support/scratch.hpp"
#include "kernels/support/typed.hpp"
#include "kernels/support/vec.hpp"
#include "tessera/base/math.hpp"

namespace tessera::kernels {
namespace {

constexpr std::int64_t kPanel = 256;
// Between the rows of a transposed A, as multiply_rows_with_onednn wants it.
constexpr std::int64_t kGap = 16;

/// A block of C and the panels that one thread converts into.
struct Block {
  std::int64_t row;
  std::int64_t column;
  std::int64_t rows;
  std::int64_t columns;
  float* a;
  float* b;
  float* c;
};

/// Converts a part of a stored matrix to fp32, into rows `to_stride` apart.
void widen(ConstValues from, std::int64_t stride, std::int64_t rows, std::int64_t columns,
           float* to, std::int64_t to_stride) {
  with_type(from.dtype, [&]<class T>(std::type_identity<T>) {
    for (std::int64_t r = 0; r < rows; ++r) {
      const T* const source = from.as<T>() + r * stride;
      float* const target = to + r * to_stride;
      for_lanes(columns, [&](std::int64_t i, auto lanes) {
        lanes.write(target + i, lanes.read(source + i));
      });
    }
  });
}

/// Converts op(M)[row .. row + rows, column .. column + columns) to fp32, stored in the order of M,
/// whose rows lie `stride` apart, with `gap` elements after each row.
void widen_part(ConstValues matrix, Transpose transpose, std::int64_t stride, std::int64_t row,
                std::int64_t rows, std::int64_t column, std::int64_t columns, float* to,
                std::int64_t gap) {
  if (transpose == Transpose::yes) {
    std::swap(row, column);
    std::swap(rows, columns);
  }
  widen(matrix.at(row * stride + column), stride, rows, columns, to, columns + gap);
}

void multiply_panels(const MatMul& p) {
  if (onednn_is_faster(DType::fp32) && is_large_enough_for_onednn(p.n, p.k)) {
    multiply_rows_with_onednn(p, 0, p.m);
    return;
  }
  float* const c = p.c.as<float>();
  if (p.write == Write::overwrite) { std::fill_n(c, p.m * p.n, 0.0F); }
  add_matmul({.a = {p.a.as<float>(), p.a_row_elems()},
              .transpose_a = p.transpose_a,
              .b = {p.b.as<float>(), p.transpose_b == Transpose::yes ? p.k : p.n},
              .transpose_b = p.transpose_b,
              .c = {c, p.n},
              .m = p.m,
              .n = p.n,
              .k = p.k});
}

void sum_up(const MatMul& p, const Block& block) {
  const std::int64_t b_stride = p.transpose_b == Transpose::yes ? p.k : p.n;
  const bool transposed = p.transpose_a == Transpose::yes;
  const std::int64_t gap = transposed ? kGap : 0;
  for (std::int64_t first = 0; first < p.k; first += kPanel) {
    const std::int64_t terms = std::min(kPanel, p.k - first);
    widen_part(p.a, p.transpose_a, p.a_row_elems(), block.row, block.rows, first, terms, block.a,
               gap);
    widen_part(p.b, p.transpose_b, b_stride, first, terms, block.column, block.columns, block.b, 0);
    multiply_panels({.a = block.a,
                     .b = block.b,
                     .c = block.c,
                     .m = block.rows,
                     .n = block.columns,
                     .k = terms,
                     .transpose_a = p.transpose_a,
                     .transpose_b = p.transpose_b,
                     .write = first == 0 ? Write::overwrite : Write::add,
                     .a_stride = (transposed ? block.rows : terms) + gap});
  }
}

void round_into_c(const MatMul& p, const Block& block) {
  with_type(p.c.dtype, [&]<class T>(std::type_identity<T>) {
    for (std::int64_t r = 0; r < block.rows; ++r) {
      const float* const sums = block.c + r * block.columns;
      T* const c = p.c.as<T>() + (block.row + r) * p.c_row_elems() + block.column;
      for_lanes(block.columns, [&](std::int64_t i, auto lanes) {
        const Vec before = p.write == Write::add ? lanes.read(c + i) : Vec{};
        lanes.write(c + i,
                    p.write == Write::add ? before + lanes.read(sums + i) : lanes.read(sums + i));
      });
    }
  });
}

}  // namespace

std::int64_t block_count(const MatMul& product) noexcept {
  return ceil_div(product.m, kBlockRows) * ceil_div(product.n, kBlockColumns);
}

void multiply_block(const MatMul& product, std::int64_t index) {
  thread_local Scratch scratch;
  constexpr std::int64_t a_elems = (kBlockRows + kGap) * kPanel;
  constexpr std::int64_t b_elems = kBlockColumns * kPanel;
  constexpr std::int64_t c_elems = kBlockRows * kBlockColumns;
  auto* const panels =
      static_cast<float*>(scratch.reserve((a_elems + b_elems + c_elems) * sizeof(float)));

  const std::int64_t across = ceil_div(product.n, kBlockColumns);
  const std::int64_t row = index / across * kBlockRows;
  const std::int64_t column = index % across * kBlockColumns;
  const Block block{row,
                    column,
                    std::min(kBlockRows, product.m - row),
                    std::min(kBlockColumns, product.n - column),
                    panels,
                    panels + a_elems,
                    panels + a_elems + b_elems};
  if (product.k == 0) { std::fill_n(block.c, block.rows * block.columns, 0.0F); }
  sum_up(product, block);
  round_into_c(product, block);
}

}  // namespace tessera::kernels
