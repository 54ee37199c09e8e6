#pragma once

#include <cstdint>

#include "tessera/base/values.hpp"
#include "tessera/device/stream.hpp"
#include "tessera/kernels/write.hpp"

namespace tessera::kernels {

/// Whether a matrix is stored transposed.
enum class Transpose : std::uint8_t { no, yes };

/// What is applied to a product and its bias on the way to C.
enum class Epilogue : std::uint8_t {
  none,
  gelu,           ///< C = gelu(product); the product itself is written to `pre_gelu`
  gelu_gradient,  ///< C = product * gelu'(pre_gelu); takes no bias
};

/// A product of two matrices: C [m, n] = or += op(A) [m, k] * op(B) [k, n], all row-major.
struct MatMul {
  ConstValues a;  ///< [m, k], or [k, m] if `transpose_a`; fp32, bf16 or fp16
  ConstValues b;  ///< [k, n], or [n, k] if `transpose_b`; on CUDA of A's dtype
  Values c;       ///< [m, n]; may be of another dtype than A and B
  std::int64_t m;
  std::int64_t n;
  std::int64_t k;
  Transpose transpose_a = Transpose::no;
  Transpose transpose_b = Transpose::no;
  Write write = Write::overwrite;  ///< add: c = round(float(c) + product), rounded once
  ConstValues bias = {};  ///< [n], added to every row of the product; null: no bias. Any dtype
  Epilogue epilogue = Epilogue::none;
  Values pre_gelu = {};  ///< [m, n] of C's dtype: written by `gelu`, read by `gelu_gradient`
  /// [m, n] of C's dtype, added to the product and its bias: C = product + bias + residual. Null:
  /// no residual. It is for products without an epilogue.
  ConstValues residual = {};
  /// [n], to which the sums of B's columns are added: the gradient of a bias, where B is the
  /// gradient of what it was added to, and C that of a weight. Any dtype; null: no sums. It is for
  /// a B that is not transposed, and for Write::add without gaps in C.
  Values bias_gradient = {};
  /// Elements from one stored row to the next; 0: rows follow each other without gaps. What lies
  /// in the gaps is neither read nor written.
  std::int64_t a_stride = 0;
  std::int64_t c_stride = 0;

  /// Return the strides in elements, with 0 resolved.
  [[nodiscard]] std::int64_t a_row_elems() const noexcept {
    const std::int64_t columns = transpose_a == Transpose::yes ? m : k;
    return a_stride == 0 ? columns : a_stride;
  }
  [[nodiscard]] std::int64_t c_row_elems() const noexcept { return c_stride == 0 ? n : c_stride; }
};

/// Multiplies on `stream`, with sums in fp32 that are rounded once where C has 16 bits. fp32 is
/// true fp32, not TF32. C overlaps neither A, B, `pre_gelu` nor `residual`: what C holds itself is
/// added by Write::add. Sizes of zero are legal.
///
/// Bits:   the order of sums depends on m, n, k, strides, dtypes, transpositions, processor and
///         build, not on threads or addresses; on CUDA on the kind of device and cuBLASLt's
///         version, and on addresses only where a matrix does not start at a multiple of 16 bytes.
///         Subnormal bf16 numbers may count as zero. On a CPU a bias, an epilogue and a residual
///         give the bits of add_bias, the GELU kernels and add after the product; CUDA may leave
///         out roundings to C's dtype before the last. Sums of columns have the bits of
///         bias_gradient on a CPU, and are fp32 sums in cuBLASLt's order on CUDA.
/// Memory: none of the caller's. A CPU's thread keeps panels of about 1 MiB and up to 64 compiled
///         products of oneDNN for the next call; CUDA uses the stream's workspace.
/// Errors: ContractError for a negative size, a null or fp64 matrix, a stride shorter than a row,
///         a bias, epilogue or residual together with Write::add or with gaps in C, a gelu_gradient
///         with a bias, an epilogue without `pre_gelu` of C's dtype, a residual of another dtype
///         than C, that is C, or with an epilogue; a bias_gradient without Write::add, with gaps in
///         C or with a transposed B; on CUDA also for A and B of two dtypes. DeviceError if oneDNN
///         or cuBLASLt fails.
void matmul(const MatMul& product, Stream stream);

/// Returns a number of which fast products on this stream's device have multiples as rows and
/// columns: 64 on CUDA, 1 on a CPU. A layer that has room may round its sizes up and keep zeros
/// there, as nn::Embedding does.
[[nodiscard]] std::int64_t fast_row_multiple(Stream stream);

}  // namespace tessera::kernels
