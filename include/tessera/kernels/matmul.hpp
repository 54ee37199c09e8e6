#pragma once

#include <cstdint>

#include "tessera/base/values.hpp"
#include "tessera/device/stream.hpp"
#include "tessera/kernels/write.hpp"

namespace tessera::kernels {

/// Whether a matrix is stored transposed.
enum class Transpose : std::uint8_t {
  no,   ///< op(A) = A
  yes,  ///< op(A) is A transposed
};

/// A function applied to a product and its bias before they are written to C.
enum class Epilogue : std::uint8_t {
  none,           ///< C = product
  gelu,           ///< C = gelu(product); the product itself is written to `pre_gelu`
  gelu_gradient,  ///< C = product * gelu'(pre_gelu); takes no bias
};

/// A product of two row-major matrices: C [m, n] = op(A) [m, k] * op(B) [k, n], or C += it.
struct MatMul {
  ConstValues a;   ///< [m, k], or [k, m] if `transpose_a`; fp32, bf16 or fp16
  ConstValues b;   ///< [k, n], or [n, k] if `transpose_b`; on CUDA of A's dtype
  Values c;        ///< [m, n]; may be of another dtype than A and B
  std::int64_t m;  ///< rows of C
  std::int64_t n;  ///< columns of C
  std::int64_t k;  ///< length of the sums
  Transpose transpose_a = Transpose::no;  ///< whether A is stored transposed
  Transpose transpose_b = Transpose::no;  ///< whether B is stored transposed
  Write write = Write::overwrite;         ///< add: c = round(float(c) + product), rounded once
  ConstValues bias = {};  ///< [n], added to every row of the product; null: no bias. Any dtype
  Epilogue epilogue = Epilogue::none;  ///< applied to the product and its bias
  Values pre_gelu = {};  ///< [m, n] of C's dtype: written by `gelu`, read by `gelu_gradient`
  /// [m, n] of C's dtype, added to the product and its bias: C = product + bias + residual. Null:
  /// no residual. Only for products without an epilogue.
  ConstValues residual = {};
  /// [n], for the sums of B's columns; any dtype; null: no sums. If B is the gradient of a layer's
  /// output and C that of its weight, it is the gradient of the bias. Only for a B that is not
  /// transposed and a C without gaps, and without bias, epilogue and residual.
  Values bias_gradient = {};
  Write bias_gradient_write = Write::add;  ///< add: to the old values of `bias_gradient`
  /// Elements from one stored row of A to the next; 0: no gaps. Gaps are not read.
  std::int64_t a_stride = 0;
  /// Elements from one row of C to the next; 0: no gaps. Gaps are neither read nor written.
  std::int64_t c_stride = 0;

  /// Returns `a_stride` in elements, with 0 resolved.
  [[nodiscard]] std::int64_t a_row_elems() const noexcept {
    const std::int64_t columns = transpose_a == Transpose::yes ? m : k;
    return a_stride == 0 ? columns : a_stride;
  }
  /// Returns `c_stride` in elements, with 0 resolved.
  [[nodiscard]] std::int64_t c_row_elems() const noexcept { return c_stride == 0 ? n : c_stride; }
};

/// Multiplies two matrices on `stream`. Sums are formed in fp32 (true fp32, not TF32) and rounded
/// once if C has 16 bits. C must not overlap A, B, `pre_gelu` or `residual`; Write::add adds to the
/// old values of C. Sizes of zero are legal.
///
/// Bits:   on a CPU the bits of a row of C depend on its row of A, on B, n, k, dtypes,
///         transpositions and `write`, on the processor, the build and TESSERA_CPU: not on m, that
///         is on the rows computed with it, nor on strides, addresses or threads. Columns of B cut
///         into two products may give other bits. On CUDA the order of sums also depends on m,
///         strides, the kind of device and cuBLASLt's version, and on addresses only if a matrix
///         does not start at a multiple of 16 bytes. Subnormal bf16 numbers may count as zero. On a
///         CPU a bias, an epilogue and a residual give the bits of add_bias, the GELU kernels and
///         add after the product; CUDA may leave out roundings to C's dtype before the last. Sums
///         of columns have the bits of bias_gradient, unless CUDA computes them in the product, in
///         fp32 in cuBLASLt's order: where `WorldOptions::products` has an algorithm for the two
///         together.
/// Memory: the caller gives no workspace. On a CPU each thread keeps panels of about 1 MiB, copies
///         of a few rows of A and C, and up to 64 compiled products of oneDNN for the next call;
///         CUDA uses the stream's workspace.
/// Errors: ContractError for a negative size, a null or fp64 matrix, or a stride shorter than a
///         row; for a bias, epilogue or residual together with Write::add or with gaps in C; for a
///         gelu_gradient with a bias, or an epilogue without `pre_gelu` of C's dtype; for a
///         residual that is C, has another dtype than C, or comes with an epilogue; for a
///         bias_gradient with gaps in C, with a transposed B, or with a bias, epilogue or residual;
///         on CUDA also for A and B of different dtypes. DeviceError if oneDNN or cuBLASLt fails.
void matmul(const MatMul& product, Stream stream);

/// Returns the number whose multiples are fast row and column counts of products on this stream's
/// device: 64 on CUDA, 1 on a CPU. A layer with room may round its sizes up and fill the rest with
/// zeros, as nn::Embedding does.
[[nodiscard]] std::int64_t fast_row_multiple(Stream stream);

}  // namespace tessera::kernels
