#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/support/vec.hpp"
#include "tessera/base/values.hpp"
#include "tessera/kernels/write.hpp"

namespace tessera::kernels {

/// Rows per block: their column sums are formed in registers before they are added to a total in
/// memory. Rounding grows with the number of blocks, not of rows, and a block is still in the cache
/// when a second pass needs it.
inline constexpr std::int64_t kRowBlock = 32;

/// Zeroes `sums` before anything is added, if they are to be overwritten.
inline void clear_for(Write write, Values sums, std::int64_t columns) noexcept {
  if (write == Write::add || !sums) { return; }
  std::memset(sums.data, 0, static_cast<std::size_t>(columns) * size_of(sums.dtype));
}

/// to[c] += sum over r in [0, rows) of value(r, c). The sum is formed first, in order of r.
/// `value(r, c, lanes)` returns the Vec of columns c .. c+7, reading memory through `lanes`.
template <class T, class Value>
void add_column_sums(T* to, std::int64_t rows, std::int64_t columns, Value value) {
  constexpr std::int64_t wide = 4 * kLanes;
  std::int64_t c = 0;
  for (; c + wide <= columns; c += wide) {
    Vec sum[4] = {};
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t v = 0; v < 4; ++v) { sum[v] += value(r, c + v * kLanes, FullLanes{}); }
    }
    for (std::int64_t v = 0; v < 4; ++v) {
      T* at = to + c + v * kLanes;
      store(at, load(at) + sum[v]);
    }
  }
  for (; c < columns; c += kLanes) {
    const SomeLanes part{columns - c < kLanes ? columns - c : kLanes};
    Vec sum{};
    for (std::int64_t r = 0; r < rows; ++r) { sum += value(r, c, part); }
    part.write(to + c, part.read(to + c) + sum);
  }
}

}  // namespace tessera::kernels
