#pragma once

#include <cstdint>

#include "tessera/base/values.hpp"
#include "tessera/device/stream.hpp"

namespace tessera::kernels {

enum class Transpose : std::uint8_t { no, yes };
enum class Write : std::uint8_t { overwrite, add };

/// C (m x n) = or += op(A) (m x k) * op(B) (k x n), row-major fp32.
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

/// Sums in an order that depends on m, n, k and the processor alone, not on addresses. C overlaps
/// neither A nor B. Zero sizes legal.
using MatMulKernel = void(const MatMul& product, Stream stream);

namespace reference {
MatMulKernel matmul;
}
namespace cpu {
MatMulKernel matmul;
}

}  // namespace tessera::kernels
