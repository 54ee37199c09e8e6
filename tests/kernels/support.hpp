#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <span>
#include <vector>

namespace tessera::kernels {

/// Around the widths of registers, blocks and grids.
inline constexpr std::int64_t kSizes[] = {0, 1, 31, 32, 33, 255, 257, 100'003};
inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
inline constexpr float kInfinity = std::numeric_limits<float>::infinity();

using Floats = std::vector<float>;

/// Normally distributed; equal seeds give equal values.
inline Floats random_floats(std::int64_t elems, unsigned seed, float stddev = 1.0F) {
  std::mt19937 generator{seed};
  std::normal_distribution<float> normal{0.0F, stddev};
  Floats values(static_cast<std::size_t>(elems));
  for (float& value : values) { value = normal(generator); }
  return values;
}

inline Floats filled(std::int64_t elems, float value) {
  return Floats(static_cast<std::size_t>(elems), value);
}

/// Rows of `columns`, `stride` apart, each followed by a gap of NaNs; without_gaps removes the
/// gaps.
inline Floats with_gaps(const Floats& rows, std::int64_t columns, std::int64_t stride) {
  const auto count = std::ssize(rows) / columns;
  Floats all = filled(count * stride, kNan);
  for (std::int64_t r = 0; r < count; ++r) {
    std::copy_n(rows.begin() + r * columns, columns, all.begin() + r * stride);
  }
  return all;
}
inline Floats without_gaps(const Floats& all, std::int64_t columns, std::int64_t stride) {
  Floats rows;
  for (std::int64_t r = 0; r < std::ssize(all) / stride; ++r) {
    const auto first = all.begin() + r * stride;
    rows.insert(rows.end(), first, first + columns);
  }
  return rows;
}

/// Equality that distinguishes -0 from 0, and treats NaNs as equal.
inline std::vector<std::uint32_t> bits_of(std::span<const float> values) {
  std::vector<std::uint32_t> bits;
  bits.reserve(values.size());
  for (const float value : values) { bits.push_back(std::bit_cast<std::uint32_t>(value)); }
  return bits;
}
inline bool same_bits(std::span<const float> a, std::span<const float> b) {
  return bits_of(a) == bits_of(b);
}

/// Points that cut [0, elems) into random pieces: first 0, last `elems`.
inline std::vector<std::int64_t> random_cuts(std::int64_t elems, int pieces, unsigned seed) {
  std::mt19937 generator{seed};
  std::uniform_int_distribution<std::int64_t> uniform{0, elems};
  std::vector<std::int64_t> cuts{0, elems};
  for (int i = 1; i < pieces; ++i) { cuts.push_back(uniform(generator)); }
  std::sort(cuts.begin(), cuts.end());
  return cuts;
}

/// The largest |a - b|; infinity if one is NaN.
inline double largest_difference(std::span<const float> a, std::span<const float> b) {
  double largest = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double difference = std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    if (!(difference <= largest)) { largest = std::isnan(difference) ? HUGE_VAL : difference; }
  }
  return a.size() == b.size() ? largest : HUGE_VAL;
}

}  // namespace tessera::kernels
