#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/attention/attention_heads_cuda.cuh"
#include "kernels/support/cuda/cuda_reduce.cuh"
#include "kernels/support/cuda/cuda_tile.cuh"
#include "tessera/base/math.hpp"

// Building blocks of attention's fp32 kernels: tiles of 64 x 64 floats in shared memory. 16 x 16
// threads multiply tiles, each with 4 x 4 elements of the product in registers. The dtype is a
// run-time argument rather than a template argument: it matters only where a tile is loaded, and
// three kernels would take three times as long to compile.
namespace tessera::kernels::cuda {

inline constexpr int kTileSide = 64;  // query rows, keys, or elements of a head
inline constexpr int kSide = 4;       // side of a thread's part of a product
inline constexpr int kThreadSide = kTileSide / kSide;
inline constexpr int kTileThreads = kThreadSide * kThreadSide;
inline constexpr int kMostHeadChunks = 4;  // most chunks of kTileSide elements in a head
inline constexpr std::int64_t kMostHeadSize = kMostHeadChunks * kTileSide;

struct alignas(16) Tile {
  float at[kTileSide][kTileSide];
};
using Part = float[kSide][kSide];

/// The calling thread's first row and column of a product.
__device__ inline int part_row() {
  return static_cast<int>(threadIdx.x) / kThreadSide * kSide;
}
__device__ inline int part_column() {
  return static_cast<int>(threadIdx.x) % kThreadSide * kSide;
}

/// The array from element `i` on.
__device__ inline ConstValues at_element(ConstValues array, std::int64_t i) {
  const std::int64_t bytes = array.dtype == DType::fp32 ? 4 : 2;
  array.data = static_cast<const std::byte*>(array.data) + i * bytes;
  return array;
}

/// Converts to fp32, exactly.
__device__ inline void widen(const Bits& bits, DType dtype, float (&to)[kEight]) {
#pragma unroll
  for (int j = 0; j < kEight; ++j) {
    if (dtype == DType::fp32) {
      to[j] = std::bit_cast<float>(bits.at[j]);
    } else {
      const std::uint32_t word = bits.at[j / 2];
      to[j] = widen_bits(static_cast<std::uint16_t>(j % 2 == 0 ? word : word >> 16U), dtype);
    }
  }
}

/// store_floats at element `i` of an array.
__device__ inline void store_any(Values to, std::int64_t i, Access access, std::int64_t count,
                                 const float (&from)[kSide]) {
  if (to.dtype == DType::fp32) {
    store_floats(static_cast<float*>(to.data) + i, access, count, from);
  } else if (to.dtype == DType::bf16) {
    store_floats(static_cast<__nv_bfloat16*>(to.data) + i, access, count, from);
  } else {
    store_floats(static_cast<__half*>(to.data) + i, access, count, from);
  }
}

/// Some rows of a matrix in memory: at most kTileSide rows, and at most kTileSide elements of each.
struct Rows {
  ConstValues data;
  std::int64_t stride;
  int rows;
  int columns;
  Access access;

  /// Issues the loads of eight neighbours of a row, with zeros beyond the matrix.
  [[nodiscard]] __device__ Bits load(int row, int column) const {
    if (row >= rows || column >= columns) { return {}; }
    const std::int64_t at = row * stride + column;
    if (data.dtype == DType::fp32) {
      return load_bits(static_cast<const std::uint32_t*>(data.data) + at, columns - column);
    }
    return load_bits(static_cast<const std::uint16_t*>(data.data) + at, columns - column);
  }

 private:
  template <class Word>
  [[nodiscard]] __device__ Bits load_bits(const Word* from, int count) const {
    constexpr int width = kPack<Word>;
    Bits bits{};
    if (access == Access::packs) {
#pragma unroll
      for (int i = 0; i < kEight / width; ++i) {
        set_words(bits, 4 * i, reinterpret_cast<const uint4*>(from)[i]);
      }
    } else {
      constexpr int per_word = width / 4;
#pragma unroll
      for (int j = 0; j < kEight; ++j) {
        if (j < count) {
          bits.at[j / per_word] |= std::uint32_t{from[j]} << (16U * (j % per_word));
        }
      }
    }
    return bits;
  }
};

/// Number of times that a thread loads eight elements for one tile.
inline constexpr int kEights = kTileSide * kTileSide / kEight / kTileThreads;

/// Calls to(i, values) with what load(i) read, as numbers, for each i of the thread. All loads are
/// issued before the first is waited for.
template <class Load, class To>
__device__ void load_eights(DType dtype, Load load, To to) {
  Bits bits[kEights];
#pragma unroll
  for (int i = 0; i < kEights; ++i) { bits[i] = load(i); }
#pragma unroll
  for (int i = 0; i < kEights; ++i) {
    float values[kEight];
    widen(bits[i], dtype, values);
    to(i, values);
  }
}

/// to[r][c] = from[r][c], with zeros beyond.
__device__ inline void load_rows(Tile& to, const Rows& from) {
  constexpr int packs = kTileSide / kEight;
  const auto row = [](int i) { return (static_cast<int>(threadIdx.x) + i * kTileThreads) / packs; };
  const int column = static_cast<int>(threadIdx.x) % packs * kEight;
  load_eights(
      from.data.dtype, [&](int i) { return from.load(row(i), column); },
      [&](int i, const float(&values)[kEight]) {
        store_floats(&to.at[row(i)][column], Access::packs, kEight, values);
      });
}

/// to[c][r] = from[r][c], with zeros beyond. Neighbouring threads take rows below each other, so
/// that their writes go to different banks.
__device__ inline void load_transposed(Tile& to, const Rows& from) {
  const int row = static_cast<int>(threadIdx.x) % kTileSide;
  const auto column = [](int i) {
    return (static_cast<int>(threadIdx.x) + i * kTileThreads) / kTileSide * kEight;
  };
  load_eights(
      from.data.dtype, [&](int i) { return from.load(row, column(i)); },
      [&](int i, const float(&values)[kEight]) {
#pragma unroll
        for (int j = 0; j < kEight; ++j) { to.at[column(i) + j][row] = values[j]; }
      });
}

/// to[r][c] = the product whose parts the threads hold.
__device__ inline void store_parts(Tile& to, const Part& part) {
#pragma unroll
  for (int i = 0; i < kSide; ++i) {
    store_floats(&to.at[part_row() + i][part_column()], Access::packs, kSide, part[i]);
  }
}

/// The order of rows in a tile's columns: plain, or with groups of four exchanged such that a
/// product's columns are stored without bank conflicts.
enum class Order : std::uint8_t { plain, exchanged };

__device__ inline int exchanged(int row, int column) {
  return row ^ column / kSide * kSide;
}

/// to[c][r] = the product whose parts the threads hold, exchanged.
__device__ inline void store_parts_transposed(Tile& to, const Part& part) {
#pragma unroll
  for (int j = 0; j < kSide; ++j) {
    float column[kSide];
#pragma unroll
    for (int i = 0; i < kSide; ++i) { column[i] = part[i][j]; }
    store_floats(&to.at[part_column() + j][exchanged(part_row(), part_column())], Access::packs,
                 kSide, column);
  }
}

/// part[i][j] += the sum over k < depth of a[k][part_row() + i] * b[k][part_column() + j]. `depth`
/// is rounded up to a multiple of four.
template <Order order = Order::plain>
__device__ void multiply(const Tile& a, const Tile& b, int depth, Part& part) {
  for (int group = 0; group < depth; group += kSide) {
    const int row = order == Order::plain ? part_row() : exchanged(part_row(), group);
#pragma unroll
    for (int k = group; k < group + kSide; ++k) {
      const Pack<float, kSide> left = load_pack<kSide>(&a.at[k][row]);
      const Pack<float, kSide> right = load_pack<kSide>(&b.at[k][part_column()]);
#pragma unroll
      for (int i = 0; i < kSide; ++i) {
#pragma unroll
        for (int j = 0; j < kSide; ++j) { part[i][j] = fmaf(left.at[i], right.at[j], part[i][j]); }
      }
    }
  }
}

/// A head cut into tiles.
struct TiledHead : Head {
  /// Number of elements in chunk `chunk` of the head: at most kTileSide, zero or negative beyond
  /// the last.
  [[nodiscard]] __device__ int columns(int chunk) const {
    const std::int64_t rest = all.size - std::int64_t{chunk} * kTileSide;
    return static_cast<int>(rest < kTileSide ? rest : kTileSide);
  }
  /// Number of rows in tile `tile`.
  [[nodiscard]] __device__ int rows(std::int64_t tile) const {
    const std::int64_t rest = all.seq - tile * kTileSide;
    return static_cast<int>(rest < kTileSide ? rest : kTileSide);
  }
  /// Chunk `chunk` of tile `tile` of a matrix.
  [[nodiscard]] __device__ Rows tile(ConstValues data, std::int64_t tile, int chunk,
                                     Matrix matrix) const {
    return {at_element(data, at(tile * kTileSide, matrix) + std::int64_t{chunk} * kTileSide),
            stride(matrix), rows(tile), columns(chunk), all.access};
  }
  /// Stores a thread's part of chunk `chunk` of that tile.
  __device__ void store(Values data, std::int64_t tile, int chunk, Matrix matrix,
                        const Part& part) const {
    const int count = columns(chunk) - part_column();
    if (count <= 0) { return; }
#pragma unroll
    for (int i = 0; i < kSide; ++i) {
      const std::int64_t t = tile * kTileSide + part_row() + i;
      if (t < all.seq) {
        store_any(data, at(t, matrix) + std::int64_t{chunk} * kTileSide + part_column(), all.access,
                  count, part[i]);
      }
    }
  }
  /// The first tile with a key that row t sees.
  template <Kind Which>
  [[nodiscard]] __device__ std::int64_t first_tile(std::int64_t t) const {
    return Which == Kind::plain ? 0 : first_key(t) / kTileSide;
  }
  /// The first of the keys from `keys` on that row t sees: at least 0, at most kTileSide if it sees
  /// none of a tile.
  template <Kind Which>
  [[nodiscard]] __device__ int first_seen(std::int64_t t, std::int64_t keys) const {
    if (Which == Kind::plain || t >= all.seq) { return 0; }
    const std::int64_t first = first_key(t) - keys;
    return static_cast<int>(first < 0 ? 0 : first < kTileSide ? first : kTileSide);
  }
  /// The factors of the probabilities with which row t attends to four keys from `first` on.
  __device__ void mask(std::int64_t t, std::int64_t first, float (&to)[kSide]) const {
    all.mask.factors(sample(), masked_row(t), all.seq, first, to);
  }
};

/// part += q k^T: the product of two tiles of rows of a head. `load(chunk)` stores their chunks in
/// `a` and `b`, transposed. All threads call it; no thread loads before all have arrived.
template <int Chunks, class Load>
__device__ void multiply_rows(const TiledHead& head, const Tile& a, const Tile& b, Load load,
                              Part& part) {
#pragma unroll 1
  for (int chunk = 0; chunk < Chunks; ++chunk) {
    if (head.columns(chunk) <= 0) { break; }
    __syncthreads();
    load(chunk);
    __syncthreads();
    multiply(a, b, head.columns(chunk), part);
  }
}

/// Calls body.template operator()<kind, Chunks>() with room for a head of `size`.
template <class Body>
void with_chunks(Kind kind, std::int64_t size, Body body) {
  expects(size <= kMostHeadSize, "attention on CUDA: a head has at most 256 elements");
  const auto with_kind = [&]<Kind Which>(std::integral_constant<Kind, Which>) {
    if (size <= kTileSide) {
      body.template operator()<Which, 1>();
    } else if (size <= 2 * kTileSide) {
      body.template operator()<Which, 2>();
    } else {
      body.template operator()<Which, kMostHeadChunks>();
    }
  };
  kind == Kind::plain ? with_kind(std::integral_constant<Kind, Kind::plain>{})
                      : with_kind(std::integral_constant<Kind, Kind::any>{});
}

}  // namespace tessera::kernels::cuda
