#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/attention/attention_cores.hpp"
#include "kernels/attention/attention_heads_cuda.cuh"
#include "kernels/support/cuda/cuda_mma.cuh"
#include "kernels/support/cuda/cuda_tile.cuh"

// Building blocks of attention on tensor cores. A block of four warps processes some rows of a
// head, queries or keys, and iterates over the others: they are loaded into a ring of tiles in
// shared memory while earlier tiles are computed. Scores stay in registers: the layout of the 16 x
// 16 elements that mma produces is the layout that it takes as the left factor of the next product.
//
// Dropout's words come in groups of four, for four neighbouring keys of a query. Keys are therefore
// ordered such that the elements of a lane's products include four neighbours: the address that a
// lane loads decides which row of a tile becomes which row of a product.
namespace tessera::kernels::cuda {

inline constexpr int kCoresThreads = 128;
inline constexpr int kCoresStageBytes = 16384;  // of a ring: a tile of K and one of V, or all of Q

/// Part of a block's shared memory.
template <int Bytes = kCoresStageBytes>
struct alignas(128) Stage {
  std::byte at[Bytes];
};

/// Sizes for heads padded with zeros to `Size` elements. Each warp processes `kSets` * 16 rows of
/// its block.
template <int Size>
struct Cores {
  static_assert(Size == 64 || Size == 128);
  static constexpr int kRowBytes = 2 * Size;
  static constexpr int kSets = Size == 64 ? 2 : 1;
  static constexpr int kWarpRows = 16 * kSets;
  static constexpr int kRows = kCoresThreads / 32 * kWarpRows;  ///< rows per block: 128 or 64
  static constexpr int kTileBytes = kRows * kRowBytes;          ///< size of kRows rows
  static_assert(kTileBytes == kCoresStageBytes);
};

__device__ inline int cores_warp() {
  return static_cast<int>(threadIdx.x) / 32;
}
__device__ inline int cores_lane() {
  return static_cast<int>(threadIdx.x) % 32;
}
/// The row, and the first of two columns, of the calling lane's elements of a product.
__device__ inline int lane_row() {
  return cores_lane() / 4;
}
__device__ inline int lane_pair() {
  return cores_lane() % 4;
}

/// Swizzle of the 16-byte pieces in a tile: piece p of a row is stored at p ^ exchange(row). The
/// exchanges of eight rows that are loaded at once all differ, be they neighbours, every second
/// pair, every second row or every fourth row. If two numbers share no bit, the exchange of their
/// sum is the ^ of their exchanges.
__host__ __device__ constexpr int piece_exchange(int row) {
  return (row ^ (row >> 3 & 1) * 3 ^ (row >> 4 & 1)) & 7;
}

/// The row of a tile, and which of two pieces, that the calling lane addresses when its warp loads
/// four matrices.
template <int Size>
class Place {
 public:
  __device__ Place(int row, int piece)
      : row_{SharedAddress{Cores<Size>::kRowBytes} * row},
        piece_{SharedAddress{16} * (piece ^ piece_exchange(row))} {}

  /// The lane's 16 bytes, moved by `row` rows and `piece` pieces, neither of which shares a bit
  /// with the lane's own.
  [[nodiscard]] __device__ SharedAddress at(SharedAddress tile, int row, int piece) const {
    const auto exchanged = SharedAddress{16} * (piece ^ piece_exchange(row));
    return tile + row_ + (exchanged ^ piece_) + SharedAddress{Cores<Size>::kRowBytes} * row;
  }

 private:
  SharedAddress row_;
  SharedAddress piece_;
};

/// The lane's row of a matrix, and which of the four matrices it is in.
__device__ inline int matrix_row() {
  return cores_lane() % 8;
}
__device__ inline int matrix() {
  return cores_lane() / 8;
}

/// 16 rows in stored order: the left factor, or, transposed, 16 rows of the right factor.
template <int Size>
__device__ Place<Size> rows_in_order() {
  return {cores_lane() % 16, cores_lane() / 16};
}
/// 16 rows in stored order, which are columns of the right factor.
template <int Size>
__device__ Place<Size> columns_in_order() {
  return {matrix() / 2 * 8 + matrix_row(), matrix() % 2};
}
/// A lane holds four neighbouring keys of 16: columns 2 p and 2 p + 1 of both halves of a product
/// are keys 4 p to 4 p + 3.
__device__ inline int key_of(int half, int column) {
  return 4 * (column / 2) + 2 * half + column % 2;
}
template <int Size>
__device__ Place<Size> keys_as_columns() {
  return {key_of(matrix() / 2, matrix_row()), matrix() % 2};
}
template <int Size>
__device__ Place<Size> keys_as_rows() {
  return {key_of(matrix() % 2, matrix_row()), matrix() / 2};
}

/// One head's matrix out of those stored side by side in an array of 16-bit elements.
struct HeadRows {
  const std::uint16_t* data;
  std::int64_t stride;
  int rows;
  int columns;
  Access access;
};
__device__ inline HeadRows rows_of(const Head& head, ConstValues array, Matrix matrix) {
  return {static_cast<const std::uint16_t*>(array.data) + head.at(0, matrix), head.stride(matrix),
          static_cast<int>(head.all.seq), static_cast<int>(head.all.size), head.all.access};
}

/// tile[r] = row first + r for r < Rows, with zeros beyond the matrix. If rows consist of whole
/// pieces, the copy is asynchronous and must be waited for.
template <int Size, int Rows>
__device__ void load_rows(std::byte* tile, const HeadRows& from, int first) {
  constexpr int pieces = Size / kEight;
  constexpr int rows_at_once = kCoresThreads / pieces;
  const int row = static_cast<int>(threadIdx.x) / pieces;
  const int piece = static_cast<int>(threadIdx.x) % pieces;
  const std::uint16_t* at = from.data + (first + row) * from.stride + std::int64_t{kEight} * piece;
#pragma unroll
  for (int i = 0; i < Rows; i += rows_at_once) {
    std::byte* const to =
        tile + (row + i) * Cores<Size>::kRowBytes + 16 * (piece ^ piece_exchange(row + i));
    const bool inside = first + row + i < from.rows && piece * kEight < from.columns;
    if (from.access == Access::packs) {
      copy_async(shared_address(to), at, inside ? 16 : 0);
    } else {
      std::uint32_t words[4] = {};
#pragma unroll
      for (int j = 0; j < kEight; ++j) {
        if (inside && piece * kEight + j < from.columns) {
          words[j / 2] |= std::uint32_t{at[j]} << (16U * (j % 2));
        }
      }
      *reinterpret_cast<uint4*>(to) = {words[0], words[1], words[2], words[3]};
    }
    at += rows_at_once * from.stride;
  }
}

/// The keys that a block's queries attend to, in steps. K and V are loaded into a ring of stages,
/// two steps ahead.
template <Kind Which, int Size>
class KeySteps {
 public:
  static constexpr int kStages = 3;
  static constexpr int kKeys = kCoresStageBytes / 2 / Cores<Size>::kRowBytes;  ///< per step

  /// The keys from the first that row `first_row` sees, or from somewhat before, to `end`.
  __device__ KeySteps(Stage<> (&ring)[kStages], const Head& head, ConstValues qkv, int first_row,
                      int end)
      : ring_{ring},
        k_{rows_of(head, qkv, Matrix::k)},
        v_{rows_of(head, qkv, Matrix::v)},
        first_{Which == Kind::plain ? 0 : static_cast<int>(head.first_key(first_row)) / kKeys},
        end_{end} {}

  /// Starts to load a step, counted from the first, as a group of copies; beyond the last step the
  /// group is empty.
  __device__ void load(int step) const {
    std::byte* const stage = ring_[step % kStages].at;
    const int first = key(step);
    if (first < end_) {
      load_rows<Size, kKeys>(stage, k_, first);
      load_rows<Size, kKeys>(stage + kCoresStageBytes / 2, v_, first);
    }
    close_copies();
  }

  /// Calls work(k, v, first key) for all steps. The loads of steps 0 and 1 must be the last two
  /// groups of copies issued before.
  template <class Work>
  __device__ void run(Work work) const {
    for (int step = 0; key(step) < end_; ++step) {
      wait_for_copies<1>();
      __syncthreads();  // all threads have read the stage that the next load overwrites
      load(step + 2);
      const SharedAddress stage = shared_address(ring_[step % kStages].at);
      work(stage, stage + kCoresStageBytes / 2, key(step));
    }
  }

 private:
  /// The first key of a step.
  [[nodiscard]] __device__ int key(int step) const {
    return (Which == Kind::plain ? step : first_ + step) * kKeys;
  }

  Stage<> (&ring_)[kStages];
  HeadRows k_;
  HeadRows v_;
  int first_;  ///< step, counted from the first key
  int end_;
};

/// Two numbers packed as 16-bit neighbours, rounded to nearest, ties to even.
template <class T>
__device__ inline std::uint32_t pair_of(float low, float high) {
  std::uint32_t words = 0;
  const auto copy = [&words](const auto& two) {
    // NOLINTNEXTLINE(bugprone-undefined-memory-manipulation): plain bits
    memcpy(&words, &two, sizeof words);
  };
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    copy(__floats2bfloat162_rn(low, high));
  } else {
    copy(__floats2half2_rn(low, high));
  }
  return words;
}

/// 16 columns of a warp's rows, as the left factor of a product.
template <int Sets>
struct Left {
  std::uint32_t at[Sets][4];
};

/// Loads the left factor; its sets start `apart` rows apart.
template <int Size, int Sets = Cores<Size>::kSets>
__device__ Left<Sets> load_left(SharedAddress tile, const Place<Size>& place, int apart,
                                int piece) {
  Left<Sets> left;
#pragma unroll
  for (int s = 0; s < Sets; ++s) { load_matrices(left.at[s], place.at(tile, apart * s, piece)); }
  return left;
}

/// Two neighbouring products, rounded: columns from 16 * pair on.
template <class T, int Sets, int Tiles>
__device__ Left<Sets> narrow(const float (&from)[Sets][Tiles][4], int pair) {
  Left<Sets> left;
#pragma unroll
  for (int s = 0; s < Sets; ++s) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float(&product)[4] = from[s][2 * pair + i / 2];
      left.at[s][i] = pair_of<T>(product[2L * (i % 2)], product[2L * (i % 2) + 1]);
    }
  }
  return left;
}

/// to = the warp's rows times 8 * Tiles rows of a tile, from `row` on. left(k) holds the columns of
/// the warp's rows from 16 * k on.
template <class T, int Size, int Sets, int Tiles, class LeftOf>
__device__ void multiply_rows(float (&to)[Sets][Tiles][4], SharedAddress tile,
                              const Place<Size>& place, int row, LeftOf left) {
#pragma unroll
  for (int s = 0; s < Sets; ++s) {
#pragma unroll
    for (int n = 0; n < Tiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) { to[s][n][i] = 0.0F; }
    }
  }
#pragma unroll
  for (int k = 0; k < Size / 16; ++k) {
    const auto& a = left(k);
#pragma unroll
    for (int n = 0; n < Tiles / 2; ++n) {
      std::uint32_t b[4];
      load_matrices(b, place.at(tile, row + 16 * n, 2 * k));
#pragma unroll
      for (int s = 0; s < Sets; ++s) {
        mma<T>(to[s][2 * n], a.at[s], b[0], b[1]);
        mma<T>(to[s][2 * n + 1], a.at[s], b[2], b[3]);
      }
    }
  }
}

/// to += left b, where b is 16 rows of a tile, from `row` on.
template <class T, int Size, int Sets>
__device__ void add_product(float (&to)[Sets][Size / 8][4], const Left<Sets>& left,
                            SharedAddress tile, const Place<Size>& place, int row) {
#pragma unroll
  for (int n = 0; n < Size / 16; ++n) {
    std::uint32_t b[4];
    load_matrices_transposed(b, place.at(tile, row, 2 * n));
#pragma unroll
    for (int s = 0; s < Sets; ++s) {
      mma<T>(to[s][2 * n], left.at[s], b[0], b[1]);
      mma<T>(to[s][2 * n + 1], left.at[s], b[2], b[3]);
    }
  }
}

/// Stores row `half` of a lane's two rows of a set of products, times `factor`, as row t of a
/// head's matrix.
template <class T, int Size>
__device__ void store_row(Values array, const Head& head, int t, Matrix matrix,
                          const float (&products)[Size / 8][4], int half, float factor) {
  auto* const to = static_cast<std::uint16_t*>(array.data) + head.at(t, matrix);
#pragma unroll
  for (int n = 0; n < Size / 8; ++n) {
    const int column = 8 * n + 2 * lane_pair();
    const std::uint32_t words =
        pair_of<T>(products[n][2 * half] * factor, products[n][2 * half + 1] * factor);
    if (head.all.access == Access::packs) {
      if (column < head.all.size) { *reinterpret_cast<std::uint32_t*>(to + column) = words; }
    } else {
      if (column < head.all.size) { to[column] = static_cast<std::uint16_t>(words); }
      if (column + 1 < head.all.size) { to[column + 1] = static_cast<std::uint16_t>(words >> 16U); }
    }
  }
}

/// The KeyMask of one head.
class HeadWords {
 public:
  __device__ explicit HeadWords(const Head& head)
      : mask_{head.all.mask},
        sample_{static_cast<std::uint64_t>(mask_.first_sample + head.sample())},
        first_row_{static_cast<std::uint64_t>(head.masked_row(0))},
        groups_{static_cast<std::uint32_t>((head.all.seq + 3) / 4)} {}

  /// Continues with another head of the same sample.
  __device__ void take(const Head& head) {
    first_row_ = static_cast<std::uint64_t>(head.masked_row(0));
  }

  [[nodiscard]] __device__ bool on() const { return mask_.on; }
  [[nodiscard]] __device__ float factor() const { return mask_.on ? mask_.factor : 1.0F; }
  /// Sets whether each of four keys from `first` on, a multiple of four, is dropped for row t.
  __device__ void dropped(int t, int first, bool (&to)[4]) const {
    const std::uint64_t row = first_row_ + static_cast<std::uint32_t>(t);
    const auto words =
        mask_.philox.words(row * groups_ + static_cast<std::uint32_t>(first) / 4, sample_);
#pragma unroll
    for (int i = 0; i < 4; ++i) { to[i] = words[i] < mask_.threshold; }
  }

 private:
  const KeyMask& mask_;
  std::uint64_t sample_;
  std::uint64_t first_row_;
  std::uint32_t groups_;
};

/// The first keys that rows of a warp see. In plain attention that is the first of all, and takes
/// no registers.
template <Kind Which, int Rows>
class FirstSeen {
 public:
  /// Rows `row(0)` to `row(Rows - 1)` of the calling lane, of the warp's rows from `first_row` to
  /// before `end`.
  template <class Row>
  __device__ FirstSeen(const Head& head, int first_row, int end, Row row) {
    const int last = static_cast<int>(head.all.seq) - 1;
    least_ = static_cast<int>(head.first_key(min(first_row, last)));
    most_ = static_cast<int>(head.first_key(min(end - 1, last)));
#pragma unroll
    for (int i = 0; i < Rows; ++i) { at_[i] = static_cast<int>(head.first_key(min(row(i), last))); }
  }

  /// Whether some row sees a key before `end`.
  [[nodiscard]] __device__ bool any_before(int end) const { return least_ < end; }
  /// Whether all rows see the keys from `first` to themselves.
  [[nodiscard]] __device__ bool all_from(int first) const { return most_ <= first; }
  /// Whether row i sees `key`, if it is not later than the row.
  [[nodiscard]] __device__ bool sees(int i, int key) const { return at_[i] <= key; }

 private:
  int least_;
  int most_;
  int at_[Rows];
};
template <int Rows>
class FirstSeen<Kind::plain, Rows> {
 public:
  template <class Row>
  __device__ FirstSeen(const Head&, int, int, Row) {}

  [[nodiscard]] __device__ bool any_before(int) const { return true; }
  [[nodiscard]] __device__ bool all_from(int) const { return true; }
  [[nodiscard]] __device__ bool sees(int, int) const { return true; }
};

/// log2(e): exponentials are computed to base 2.
inline constexpr float kLog2E = 1.44269504F;

/// Loads a warp's rows of the block's rows of Q, or of another such matrix, into registers.
template <int Size>
__device__ void load_own(Left<Cores<Size>::kSets> (&to)[Size / 16], const std::byte* tile) {
  const Place<Size> place{cores_warp() * Cores<Size>::kWarpRows + cores_lane() % 16,
                          cores_lane() / 16};
#pragma unroll
  for (int k = 0; k < Size / 16; ++k) {
    to[k] = load_left<Size>(shared_address(tile), place, 16, 2 * k);
  }
}

/// Calls body.template operator()<kind, T, Size>() with CUDA's type for `dtype`, and room for a
/// head of `size`.
template <class Body>
void with_cores(Kind kind, DType dtype, std::int64_t size, Body body) {
  const auto with_size = [&]<Kind Which, class T>(std::type_identity<T>) {
    size <= 64 ? body.template operator()<Which, T, 64>()
               : body.template operator()<Which, T, 128>();
  };
  const auto with_kind = [&]<class T>(std::type_identity<T> type) {
    kind == Kind::plain ? with_size.template operator()<Kind::plain>(type)
                        : with_size.template operator()<Kind::any>(type);
  };
  dtype == DType::bf16 ? with_kind(std::type_identity<__nv_bfloat16>{})
                       : with_kind(std::type_identity<__half>{});
}

}  // namespace tessera::kernels::cuda
