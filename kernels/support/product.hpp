#pragma once

#include <cstdint>

#include "kernels/matmul/matmul.hpp"

namespace tessera::kernels {

/// A row-major matrix inside a larger one: row i starts at data + i * stride.
template <class T>
struct Strided {
  T* data;
  std::int64_t stride;
};

/// C (m x n) += op(A) (m x k) * op(B) (k x n), now, on the calling thread; as MatMul, with strides.
void add_product(Strided<const float> a, Transpose transpose_a, Strided<const float> b,
                 Transpose transpose_b, Strided<float> c, std::int64_t m, std::int64_t n,
                 std::int64_t k);

}  // namespace tessera::kernels
