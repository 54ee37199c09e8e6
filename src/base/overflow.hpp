#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "tessera/base/dtype.hpp"

namespace tessera {

/// Returns the least magnitude that is rounded to infinity: half a step above the largest finite
/// value; for fp64 infinity itself.
[[nodiscard]] double least_infinite(DType dtype) noexcept;

/// The finite values of a tensor that a narrower dtype rounds to infinities.
struct Overflows {
  std::int64_t count = 0;
  std::int64_t first = 0;  ///< the element of the first
  float value = 0.0F;      ///< its value

  /// Adds those of elements [at, at + values.size()), which come in order.
  void add(std::span<const float> values, DType to, std::int64_t at) noexcept;
  /// "3 of its values, the first 70000 at element 5, are beyond the range of fp16".
  [[nodiscard]] std::string text(DType to) const;
};

}  // namespace tessera
