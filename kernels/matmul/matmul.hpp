#pragma once

#include <cstdint>

#include "tessera/base/values.hpp"
#include "tessera/device/stream.hpp"

namespace tessera::kernels {

enum class Transpose : std::uint8_t { no, yes };
enum class Write : std::uint8_t { overwrite, add };

/// What becomes of the product, with its bias, on the way to C.
enum class Epilogue : std::uint8_t {
  none,
  gelu,           ///< C = gelu(product); the product itself is written to `pre_gelu`
  gelu_gradient,  ///< C = product * gelu'(pre_gelu); takes no bias
};

/// C (m x n) = or += op(A) (m x k) * op(B) (k x n), row-major. Each of fp32, bf16 or fp16.
struct MatMul {
  ConstValues a;
  ConstValues b;
  Values c;
  std::int64_t m;
  std::int64_t n;
  std::int64_t k;
  Transpose transpose_a = Transpose::no;  ///< yes: A is stored k x m
  Transpose transpose_b = Transpose::no;  ///< yes: B is stored n x k
  Write write = Write::overwrite;
  ConstValues bias = {};  ///< n values, added to every row of the product; null: none
  Epilogue epilogue = Epilogue::none;
  Values pre_gelu = {};  ///< m x n, of C's dtype, for the epilogues that name it
  /// Elements from one stored row to the next; 0: rows follow each other without gaps. What lies
  /// in the gaps is neither read nor written.
  std::int64_t a_stride = 0;
  std::int64_t c_stride = 0;

  [[nodiscard]] std::int64_t a_row_elems() const noexcept {
    const std::int64_t columns = transpose_a == Transpose::yes ? m : k;
    return a_stride == 0 ? columns : a_stride;
  }
  [[nodiscard]] std::int64_t c_row_elems() const noexcept { return c_stride == 0 ? n : c_stride; }
};

/// ContractError for fp64, for a bias or an epilogue of a product that is added to C, for one of a
/// C with gaps, for an epilogue without its `pre_gelu`, and for a stride shorter than a row.
void check_matmul(const MatMul& product);

/// Sums in fp32 and rounds once where C has 16 bits: add is c = round(float(c) + product). The
/// order of sums depends on m, n, k, the strides, dtypes and transpositions, the processor and the
/// build alone: not on addresses, nor on the number of threads. Subnormal numbers of bf16 may count
/// as zero (AMX does so). C overlaps neither A, B nor `pre_gelu`. Zero sizes legal.
///
/// Bias and epilogue on a CPU are add_bias and the GELU kernels after the product, to the bit: the
/// product is rounded to C's dtype in between. CUDA may do all in fp32 and round once; it does so
/// by a rule of sizes, dtypes and addresses modulo 16 (kernels/matmul/cuda/cublas_matmul.hpp).
///
/// On CUDA A and B are of one dtype, and the order of sums depends on the kind of device and the
/// version of cuBLASLt, and, for matrices that do not start on a multiple of 16 bytes, on that.
/// Products of fp32 are true fp32 ones, not TF32. A C of 16 bits that A and B do not have, or that
/// is added to, is multiplied in fp32 into the stream's workspace, some rows at a time, and rounded
/// from there: where C has gaps, one launch a row.
///
/// Memory: what a thread works in is kept for its next product: 1 MiB of panels where numbers are
///         converted, 256 k bytes where a transposed A of bf16 is cut into pieces, and with oneDNN
///         its scratchpad (under 4 MiB) and 64 compiled products. On CUDA the stream's workspace;
///         the stream keeps a cuBLASLt handle and its last 256 plans at most, on the host.
/// Errors: DeviceError if oneDNN or cuBLASLt fails, naming the product. ContractError as
///         check_matmul, on CUDA also for an A and a B of two dtypes, and without a workspace.
using MatMulKernel = void(const MatMul& product, Stream stream);

namespace reference {
MatMulKernel matmul;
}
namespace cpu {
MatMulKernel matmul;
}
namespace cuda {
MatMulKernel matmul;
}

}  // namespace tessera::kernels
