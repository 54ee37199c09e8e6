#pragma once

#include <cmath>
#include <cstdint>

#include "tessera/base/dtype.hpp"

// How far rounding may move a sum, and two sums of the same terms from each other. Products are
// assumed to be added in fp32 at least, which holds for every processor and GPU used here: none
// rounds the factors of fp32 products to fewer bits.
namespace tessera::test {

/// The unit roundoff u: the largest relative error of one rounding to nearest.
constexpr double unit_roundoff(DType dtype) {
  return dtype == DType::bf16 ? 0x1p-8 : dtype == DType::fp16 ? 0x1p-11 : 0x1p-24;
}

// One sum: the worst case. A sum of n terms in any order rounds n - 1 times, so that it differs
// from the exact sum by at most (n - 1) u times the sum of the terms' magnitudes, to first order in
// u (Higham, Accuracy and Stability of Numerical Algorithms, 4.2).

/// Bound of the error of `count` roundings of values up to `value`.
constexpr double roundings(double count, double value = 1.0, DType dtype = DType::fp32) {
  return count * unit_roundoff(dtype) * value;
}
/// Bound of the error of a sum in any order, relative to the sum of magnitudes.
constexpr double sum_error(std::int64_t terms, DType dtype = DType::fp32) {
  return static_cast<double>(terms - 1) * unit_roundoff(dtype);
}
/// Bound of the difference of two orders: each has that error.
constexpr double order_difference(std::int64_t terms, DType dtype = DType::fp32) {
  return 2 * sum_error(terms, dtype);
}

// Whole passes: many roundings in sequence. In the worst case n roundings add up to n u; a value at
// the end of a chain of thousands of them never comes near that. Assumption: roundings are
// independent, of mean zero (Higham and Mary, 2019), and uniform over at most one unit in the last
// place, so of mean square u^2 / 3. The error of n roundings then has the standard deviation u
// sqrt(n / 3); five of them are allowed.
//
// Condition factor: 1, relative to a tensor's largest element, its norm, or a loss. Each rounding
// of the chain is counted as if it were of the whole result, although most move only one of the
// values that the result is a sum of.

/// The roundings that a sum of n products counts for, in any order. Its i-th partial sum has a mean
/// square of at most i / n of the result's, if terms have random signs or all the same: n roundings
/// of partial sums count n / 2. Those of products are each of 1 / n of the result: together 1.
constexpr double sum_roundings(std::int64_t terms) {
  return static_cast<double>(terms) / 2 + 1;
}

inline constexpr double kDeviations = 5.0;

/// Bound of the relative error of a value after `count` roundings in sequence.
inline double chain_error(double count, DType dtype = DType::fp32) {
  return kDeviations * unit_roundoff(dtype) * std::sqrt(count / 3);
}
/// Bound of the relative difference of two runs with `count` roundings in sequence each, of which
/// none need be the same.
inline double chain_difference(double count, DType dtype = DType::fp32) {
  return std::sqrt(2.0) * chain_error(count, dtype);
}

/// The roundings in sequence of `products` linear layers with at most `widest` terms and functions
/// (8) between them, forward and backward, and of sums over `rows`.
constexpr double layers_roundings(int products, std::int64_t widest, std::int64_t rows) {
  return 2 * products * (sum_roundings(widest) + 8) + sum_roundings(rows);
}

}  // namespace tessera::test
