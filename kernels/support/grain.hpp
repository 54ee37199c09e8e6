#pragma once

#include <algorithm>
#include <cstdint>

#include "tessera/base/math.hpp"

namespace tessera::kernels {

/// Elements that are worth a thread: a few microseconds of work, about as long as waking a thread.
/// A multiple of every vector's width and of a cache line.
inline constexpr std::int64_t kElementGrain = 8192;

/// Rows of `columns` elements that are worth a thread.
[[nodiscard]] constexpr std::int64_t row_grain(std::int64_t columns) noexcept {
  return ceil_div(kElementGrain, std::max<std::int64_t>(columns, 1));
}

/// Columns of `rows` elements that are worth a thread: several cache lines of a row.
[[nodiscard]] constexpr std::int64_t column_grain(std::int64_t rows) noexcept {
  return round_up(ceil_div(kElementGrain, std::max<std::int64_t>(rows, 1)), std::int64_t{64});
}

}  // namespace tessera::kernels
