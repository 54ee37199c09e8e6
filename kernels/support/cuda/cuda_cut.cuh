#pragma once

#include <cstdint>
#include <span>

#include "tessera/base/values.hpp"

namespace tessera::kernels::cuda {

/// How a kernel divides arrays that it accesses 16 bytes at a time: single elements up to the first
/// index at which every array is at a multiple of 16 bytes, tiles of `Tile` elements from there on,
/// and the rest as single elements.
template <int Tile>
struct Cut {
  std::int64_t head = 0;
  std::int64_t tiles = 0;
  std::int64_t singles = 0;  ///< elements before and after the tiles

  __host__ __device__ std::int64_t tile(std::int64_t i) const { return head + i * Tile; }
  __host__ __device__ std::int64_t single(std::int64_t i) const {
    return i < head ? i : i + tiles * Tile;
  }
};

/// Cuts arrays of `elems` with a common index; null arrays are ignored. If no index aligns all
/// arrays, all elements are single. Parts of buffers that are cut alike always have such an index.
template <int Tile>
[[nodiscard]] Cut<Tile> cut(std::int64_t elems, std::span<const ConstValues> arrays) noexcept {
  constexpr std::int64_t most_head = 8;  // two-byte elements in 16 bytes
  for (std::int64_t head = 0; head < most_head && head <= elems; ++head) {
    bool aligned = true;
    for (const ConstValues& array : arrays) {
      aligned =
          aligned && (!array || reinterpret_cast<std::uintptr_t>(array.at(head).data) % 16 == 0);
    }
    if (!aligned) { continue; }
    const std::int64_t tiles = (elems - head) / Tile;
    return {head, tiles, elems - tiles * Tile};
  }
  return {elems, 0, elems};
}

}  // namespace tessera::kernels::cuda
