#include "kernels/matmul/matmul_strided.hpp"

#include <algorithm>
#include <utility>

#include "device/cpu/instructions.hpp"
#include "kernels/support/scratch.hpp"

namespace tessera::kernels {
namespace {

using AddBlocks = void (*)(const StridedMatMul& product);

void copy_rows(Strided<float> to, Strided<const float> from, std::int64_t rows,
               std::int64_t columns) {
  for (std::int64_t r = 0; r < rows; ++r) {
    std::copy_n(from.data + r * from.stride, columns, to.data + r * to.stride);
  }
}

/// Copies a stored matrix of `rows` x `columns` into one of `to_rows` x `to_columns`, filled up
/// with zeros.
void copy_padded(float* to, std::int64_t to_rows, std::int64_t to_columns,
                 Strided<const float> from, std::int64_t rows, std::int64_t columns) {
  std::fill_n(to, to_rows * to_columns, 0.0F);
  copy_rows({to, to_columns}, from, rows, columns);
}

/// Rows [first, m) of the product.
StridedMatMul rows_from(const StridedMatMul& p, std::int64_t first) {
  StridedMatMul rest = p;
  rest.m = p.m - first;
  rest.a.data += p.transpose_a == Transpose::yes ? first : first * p.a.stride;
  rest.c.data += first * p.c.stride;
  return rest;
}

/// The last `rows` rows, fewer than kRowBlock: computed in a copy of C with kRowBlock rows,
/// together with the rows before them or, if there are too few, with rows of zeros.
void add_last_rows(AddBlocks add_blocks, const StridedMatMul& p, std::int64_t rows) {
  thread_local Scratch scratch;
  const bool padded = p.m < kRowBlock;
  const std::int64_t c_elems = kRowBlock * p.n;
  const std::int64_t a_elems = padded ? kRowBlock * p.k : 0;
  auto* const c = static_cast<float*>(
      scratch.reserve(static_cast<std::size_t>(c_elems + a_elems) * sizeof(float)));
  StridedMatMul block = padded ? p : rows_from(p, p.m - kRowBlock);
  if (padded) {
    float* const a = c + c_elems;
    if (p.transpose_a == Transpose::yes) {
      copy_padded(a, p.k, kRowBlock, p.a, p.k, p.m);
      block.a = {a, kRowBlock};
    } else {
      copy_padded(a, kRowBlock, p.k, p.a, p.m, p.k);
      block.a = {a, p.k};
    }
  }
  const Strided<float> last = rows_from(p, p.m - rows).c;
  float* const last_of_block = padded ? c : c + (kRowBlock - rows) * p.n;
  std::fill_n(c, c_elems, 0.0F);
  copy_rows({last_of_block, p.n}, {last.data, last.stride}, rows, p.n);
  block.m = kRowBlock;
  block.c = {c, p.n};
  add_blocks(block);
  copy_rows(last, {last_of_block, p.n}, rows, p.n);
}

void add_rows(AddBlocks add_blocks, const StridedMatMul& p) {
  const std::int64_t rest = p.m % kRowBlock;
  StridedMatMul whole = p;
  whole.m = p.m - rest;
  if (whole.m > 0) { add_blocks(whole); }
  if (rest > 0) { add_last_rows(add_blocks, p, rest); }
}

constexpr std::int64_t kRowsOfColumn = 512;

/// A product of at most kRowsOfColumn rows with a vector, computed with a second column of zeros.
void add_column(AddBlocks add_blocks, const StridedMatMul& p) {
  thread_local Scratch scratch;
  auto* const b = static_cast<float*>(
      scratch.reserve(static_cast<std::size_t>(2 * (p.k + p.m)) * sizeof(float)));
  float* const c = b + 2 * p.k;
  StridedMatMul wide = p;
  wide.n = 2;
  wide.c = {c, 2};
  if (p.transpose_b == Transpose::yes) {
    copy_padded(b, 2, p.k, p.b, 1, p.k);
    wide.b = {b, p.k};
  } else {
    copy_padded(b, p.k, 2, p.b, p.k, 1);
    wide.b = {b, 2};
  }
  copy_padded(c, p.m, 2, {p.c.data, p.c.stride}, p.m, 1);
  add_rows(add_blocks, wide);
  copy_rows(p.c, {c, 2}, p.m, 1);
}

}  // namespace

void MatMulVariant::run(const StridedMatMul& product) const {
  if (product.m == 0 || product.n == 0 || product.k == 0) { return; }
  if (product.n > 1) { return add_rows(add_blocks, product); }
  for (std::int64_t first = 0; first < product.m; first += kRowsOfColumn) {
    StridedMatMul some = rows_from(product, first);
    some.m = std::min(some.m, kRowsOfColumn);
    add_column(add_blocks, some);
  }
}

std::vector<MatMulVariant> matmul_variants() {
  std::vector<MatMulVariant> variants{{"baseline", add_blocks_baseline}};
#ifdef TESSERA_HAS_AVX512_MATMUL
  if (device::uses_avx512()) { variants.push_back({"avx512", add_blocks_avx512}); }
  // Intel's server cores have two multipliers of 512 bits: measured 1.5 times as fast as AVX2.
  // AMD's Zen 4 has multipliers of 256 bits: measured slower.
  if (device::uses_avx512() && device::instructions().choices == device::Choices::intel) {
    std::swap(variants.front(), variants.back());
  }
#endif
  return variants;
}

void add_matmul(const StridedMatMul& product) {
  static const MatMulVariant fastest = matmul_variants().front();
  fastest.run(product);
}

}  // namespace tessera::kernels
