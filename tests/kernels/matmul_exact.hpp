#pragma once

#include "kernels/matmul/matmul.hpp"
#include "kernels/values.hpp"

// Products in fp64, and error bounds for kernels.
namespace tessera::kernels::exact_products {

inline constexpr Transpose kTransposes[] = {Transpose::no, Transpose::yes};
inline constexpr Write kWrites[] = {Write::overwrite, Write::add};

struct Size {
  std::int64_t m, n, k;
};

inline Floats transposed(const Floats& matrix, std::int64_t rows, std::int64_t columns) {
  Floats result(matrix.size());
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < columns; ++c) {
      result[static_cast<std::size_t>(c * rows + r)] =
          matrix[static_cast<std::size_t>(r * columns + c)];
    }
  }
  return result;
}
/// A matrix of `rows` x `columns` as it is laid out in memory.
inline Floats stored(const Floats& matrix, Transpose transpose, std::int64_t rows,
                     std::int64_t columns) {
  return transpose == Transpose::yes ? transposed(matrix, rows, columns) : matrix;
}

/// A product in fp64, and the error bound of one in fp32, besides the rounding of stored values.
struct Exact {
  std::vector<double> sum;
  std::vector<double> bound;
};

/// The product of a, m x k, and b, k x n. Bound of a sum of k rounded terms in fp32, in any order:
/// (k + 1) u times the sum of the terms' magnitudes, times `factor`.
inline Exact exact(const Floats& a, const Floats& b, const Size& s, double factor = 1.0) {
  const auto elems = static_cast<std::size_t>(s.m * s.n);
  const double unit = factor * static_cast<double>(s.k + 1) * kRoundoff;
  Exact result{std::vector<double>(elems), std::vector<double>(elems)};
  for (std::int64_t i = 0; i < s.m; ++i) {
    for (std::int64_t l = 0; l < s.k; ++l) {
      const double x = a[static_cast<std::size_t>(i * s.k + l)];
      for (std::int64_t j = 0; j < s.n; ++j) {
        const double term = x * static_cast<double>(b[static_cast<std::size_t>(l * s.n + j)]);
        const auto at = static_cast<std::size_t>(i * s.n + j);
        result.sum[at] += term;
        result.bound[at] += unit * std::abs(term);
      }
    }
  }
  return result;
}

/// The product added to `c`.
inline Exact added(Exact product, const Floats& c, std::int64_t k, double factor = 1.0) {
  for (std::size_t i = 0; i < c.size(); ++i) {
    product.sum[i] += static_cast<double>(c[i]);
    product.bound[i] +=
        factor * static_cast<double>(k + 1) * kRoundoff * std::abs(static_cast<double>(c[i]));
  }
  return product;
}

/// Within the bound, and the rounding to `dtype`, of the exact values.
inline void expect_near(const Floats& actual, const Exact& expected, DType dtype) {
  ASSERT_EQ(actual.size(), expected.sum.size());
  for (std::size_t i = 0; i < actual.size(); ++i) {
    const double sum = expected.sum[i];
    const double bound = expected.bound[i] + rounding(dtype, std::abs(sum) + expected.bound[i]);
    const double difference = std::abs(static_cast<double>(actual[i]) - sum);
    ASSERT_TRUE(difference <= bound)
        << "element " << i << ": " << actual[i] << ", not " << sum << " within " << bound;
  }
}

}  // namespace tessera::kernels::exact_products
