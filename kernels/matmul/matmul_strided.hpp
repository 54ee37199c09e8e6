#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "kernels/matmul/matmul.hpp"

namespace tessera::kernels {

/// A row-major matrix inside a larger one: row i starts at data + i * stride.
template <class T>
struct Strided {
  T* data;
  std::int64_t stride;
};

/// A matmul of fp32 matrices each of which may lie inside a larger one.
struct StridedMatMul {
  Strided<const float> a;
  Transpose transpose_a;
  Strided<const float> b;
  Transpose transpose_b;
  Strided<float> c;
  std::int64_t m;
  std::int64_t n;
  std::int64_t k;
};

/// C (m x n) += op(A) (m x k) * op(B) (k x n), computed at once on the calling thread; like MatMul,
/// with strides. The order of sums depends on the sizes and on the processor, which does not change
/// in a run.
void add_matmul(const StridedMatMul& product);

/// The same functions, each compiled for one instruction set.
void add_matmul_baseline(const StridedMatMul& product);
void add_matmul_avx512(const StridedMatMul& product);

/// One of the functions above, with the name of its instruction set.
struct MatMulVariant {
  std::string_view name;
  void (*run)(const StridedMatMul& product);
};
/// Returns the variants that this processor can run. add_matmul takes the first.
[[nodiscard]] std::vector<MatMulVariant> matmul_variants();

}  // namespace tessera::kernels
