#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

namespace tessera::nn {

/// A matrix of `row` elements from one row to the next.
template <class Element>
struct HubMatrix {
  Element* data;
  std::int64_t row;
};

/// Sets to(i, j) = from(j, i) for i < rows, j < columns. Rows may lie multiples of a page apart,
/// where a cache has few places for them: so each tile is read, and then written, by rows.
inline void hub_transpose(HubMatrix<const float> from, HubMatrix<float> to, std::int64_t rows,
                          std::int64_t columns) {
  constexpr std::int64_t kTile = 32;
  std::array<std::array<float, kTile + 1>, kTile> tile;
  for (std::int64_t j0 = 0; j0 < columns; j0 += kTile) {
    const std::int64_t width = std::min(kTile, columns - j0);
    for (std::int64_t i0 = 0; i0 < rows; i0 += kTile) {
      const std::int64_t height = std::min(kTile, rows - i0);
      for (std::int64_t j = 0; j < width; ++j) {
        const float* source = from.data + (j0 + j) * from.row + i0;
        for (std::int64_t i = 0; i < height; ++i) { tile[i][j] = source[i]; }
      }
      for (std::int64_t i = 0; i < height; ++i) {
        std::copy_n(tile[i].data(), width, to.data + (i0 + i) * to.row + j0);
      }
    }
  }
}

}  // namespace tessera::nn
