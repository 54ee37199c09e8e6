#pragma once

#include <cstdint>

#include "tessera/base/values.hpp"
#include "tessera/device/stream.hpp"

namespace tessera::kernels {

enum class Transpose : std::uint8_t { no, yes };
enum class Write : std::uint8_t { overwrite, add };

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
};

/// Sums in fp32 and rounds once where C has 16 bits: add is c = round(float(c) + product). The
/// order of sums depends on m, n, k, the dtypes, the transpositions, the processor and the build
/// alone: not on addresses, nor on the number of threads. Subnormal numbers of bf16 may count as
/// zero (AMX does so). C overlaps neither A nor B. Zero sizes legal.
///
/// Memory: what a thread works in is kept for its next product: 1 MiB of panels where numbers are
///         converted, 256 k bytes where a transposed A of bf16 is cut into pieces, and with oneDNN
///         its scratchpad (under 4 MiB) and 64 compiled products.
/// Errors: DeviceError if oneDNN fails, naming the product. ContractError for fp64.
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
