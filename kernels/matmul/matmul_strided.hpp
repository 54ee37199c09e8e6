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
/// with strides. The order of sums depends on n, k, transpositions, the processor and TESSERA_CPU,
/// which do not change in a run: a row has the same bits whatever its neighbours, strides and
/// addresses.
///
/// Memory: the calling thread keeps up to 32 (n + k) bytes for rows beyond a multiple of kRowBlock,
///         and 8 k + 4,096 bytes if n is 1.
void add_matmul(const StridedMatMul& product);

/// Eigen computes rows in blocks of 4 (versions after 3.4 also of 8), and those beyond a multiple
/// in another order for some n and k.
inline constexpr std::int64_t kRowBlock = 8;

/// The product of a multiple of kRowBlock rows and at least two columns (Eigen computes products
/// with a vector in another order), each compiled for one instruction set.
void add_blocks_baseline(const StridedMatMul& product);
void add_blocks_avx512(const StridedMatMul& product);

/// add_matmul for one instruction set.
struct MatMulVariant {
  std::string_view name;
  void (*add_blocks)(const StridedMatMul& product);

  void run(const StridedMatMul& product) const;
};
/// Returns the variants that this processor can run and TESSERA_CPU allows. add_matmul takes the
/// first.
[[nodiscard]] std::vector<MatMulVariant> matmul_variants();

}  // namespace tessera::kernels
