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

struct Product {
  Strided<const float> a;
  Transpose transpose_a;
  Strided<const float> b;
  Transpose transpose_b;
  Strided<float> c;
  std::int64_t m;
  std::int64_t n;
  std::int64_t k;
};

/// C (m x n) += op(A) (m x k) * op(B) (k x n), now, on the calling thread; as MatMul, with strides.
/// The order of sums depends on the sizes and on the processor, which stays the same in a run.
void add_product(const Product& product);

/// The same, compiled for one set of instructions each.
void add_product_baseline(const Product& product);
void add_product_avx512(const Product& product);

struct ProductVariant {
  std::string_view name;
  void (*run)(const Product& product);
};
/// Those that this processor can run, the one that add_product takes first.
[[nodiscard]] std::vector<ProductVariant> product_variants();

}  // namespace tessera::kernels
