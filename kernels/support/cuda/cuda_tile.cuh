#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "kernels/support/cuda/cuda_cut.cuh"
#include "kernels/support/cuda/cuda_element.cuh"
#include "kernels/support/cuda/cuda_mma.cuh"

// Loops over arrays of several dtypes at once. Each thread accesses 16 bytes at a time, and every
// access of a warp covers whole sectors of 32 bytes.
//
// A warp processes tiles of 256 elements, eight per thread: one access to a 16-bit array, two to an
// fp32 array. If a thread's eight elements were neighbours, each of its two fp32 accesses would
// cover half a sector, and the second-level cache would serve every sector twice. So two
// neighbouring threads share 16 elements: the first has elements 0 to 3 and 8 to 11, the second 4
// to 7 and 12 to 15. Each fp32 access of the pair is then a whole sector. In a 16-bit array each
// thread accesses eight neighbours, and the two exchange four through registers.
//
// Dtypes are run-time arguments rather than template arguments: all threads take the same branches,
// which do not wait for memory, and a rule of four arrays is one kernel instead of fifty.
namespace tessera::kernels::cuda {

inline constexpr int kTile = 256;

/// The index in its tile of the calling thread's element i, for i in [0, 8). Elements 0 to 3 are
/// neighbours and start at a multiple of four, and so do elements 4 to 7.
__device__ inline int place(int i) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  return 16 * (lane / 2) + 4 * (lane % 2) + 8 * (i / 4) + i % 4;
}

/// A thread's eight elements, as numbers or as stored: eight words of fp32, or four words with
/// eight 16-bit neighbours.
struct Eight {
  float at[8];
};
struct Bits {
  std::uint32_t at[8];
};

__device__ inline uint4 words_of(const Bits& bits, int first) {
  return {bits.at[first], bits.at[first + 1], bits.at[first + 2], bits.at[first + 3]};
}
__device__ inline void set_words(Bits& bits, int first, uint4 words) {
  bits.at[first] = words.x;
  bits.at[first + 1] = words.y;
  bits.at[first + 2] = words.z;
  bits.at[first + 3] = words.w;
}

/// Issues the loads of the calling thread's elements of the tile that starts at element `tile`.
__device__ inline Bits load_tile(const void* data, DType dtype, std::int64_t tile) {
  Bits bits;
  if (dtype == DType::fp32) {
    const auto* const words = static_cast<const std::uint32_t*>(data) + tile;
    set_words(bits, 0, *reinterpret_cast<const uint4*>(words + place(0)));
    set_words(bits, 4, *reinterpret_cast<const uint4*>(words + place(4)));
  } else {
    const auto* const halves = static_cast<const std::uint16_t*>(data) + tile;
    set_words(bits, 0, reinterpret_cast<const uint4*>(halves)[threadIdx.x % 32]);
  }
  return bits;
}

__device__ inline void store_tile(void* data, DType dtype, std::int64_t tile, const Bits& bits) {
  if (dtype == DType::fp32) {
    auto* const words = static_cast<std::uint32_t*>(data) + tile;
    store_four_words(reinterpret_cast<uint4*>(words + place(0)), words_of(bits, 0));
    store_four_words(reinterpret_cast<uint4*>(words + place(4)), words_of(bits, 4));
  } else {
    auto* const halves = static_cast<std::uint16_t*>(data) + tile;
    store_four_words(reinterpret_cast<uint4*>(halves) + threadIdx.x % 32, words_of(bits, 0));
  }
}

/// Converts eight 16-bit neighbours to the thread's own elements, and back: the even lane swaps its
/// last four for the odd lane's first four. All lanes of a warp call it together.
__device__ inline void exchange(Bits& bits) {
  const bool odd = threadIdx.x % 2 != 0;
  for (int i = 0; i < 2; ++i) {
    const std::uint32_t given = odd ? bits.at[i] : bits.at[i + 2];
    const std::uint32_t got = __shfl_xor_sync(0xFFFFFFFFU, given, 1);
    bits.at[i] = odd ? got : bits.at[i];
    bits.at[i + 2] = odd ? bits.at[i + 2] : got;
  }
}

/// The bits of a 16-bit element as a number, exactly.
__device__ inline float widen_bits(std::uint16_t bits, DType dtype) {
  if (dtype == DType::bf16) { return to_float(std::bit_cast<__nv_bfloat16>(bits)); }
  return to_float(std::bit_cast<__half>(bits));
}
/// A number as the bits of a 16-bit element, to nearest, ties to even.
__device__ inline std::uint16_t narrow_bits(float x, DType dtype) {
  if (dtype == DType::bf16) { return std::bit_cast<std::uint16_t>(from_float<__nv_bfloat16>(x)); }
  return std::bit_cast<std::uint16_t>(from_float<__half>(x));
}

/// Converts what load_tile has read to numbers. All lanes of a warp call it together.
__device__ inline Eight unpack(Bits bits, DType dtype) {
  Eight out;
  if (dtype == DType::fp32) {
    for (int i = 0; i < 8; ++i) { out.at[i] = std::bit_cast<float>(bits.at[i]); }
    return out;
  }
  exchange(bits);
  for (int i = 0; i < 8; ++i) {
    const std::uint32_t word = bits.at[i / 2];
    out.at[i] = widen_bits(static_cast<std::uint16_t>(i % 2 == 0 ? word : word >> 16U), dtype);
  }
  return out;
}

/// Packs `values` for store_tile; for a 16-bit `dtype` narrow(i, x) converts element i. All lanes
/// of a warp call it together.
template <class Narrow>
__device__ Bits pack(const Eight& values, DType dtype, const Narrow& narrow) {
  Bits bits;
  if (dtype == DType::fp32) {
    for (int i = 0; i < 8; ++i) { bits.at[i] = std::bit_cast<std::uint32_t>(values.at[i]); }
    return bits;
  }
  for (int i = 0; i < 4; ++i) {
    const std::uint32_t low = narrow(2 * i, values.at[std::size_t{2} * i]);
    const std::uint32_t high = narrow(2 * i + 1, values.at[2 * i + 1]);
    bits.at[i] = low | high << 16U;
  }
  exchange(bits);
  return bits;
}

/// Stores a tile, rounded to nearest.
__device__ inline void store_nearest(void* data, DType dtype, std::int64_t tile,
                                     const Eight& values) {
  const auto narrow = [dtype](int, float x) { return narrow_bits(x, dtype); };
  store_tile(data, dtype, tile, pack(values, dtype, narrow));
}

/// Loads a single element.
__device__ inline float load_one(const void* data, DType dtype, std::int64_t i) {
  if (dtype == DType::fp32) { return static_cast<const float*>(data)[i]; }
  return widen_bits(static_cast<const std::uint16_t*>(data)[i], dtype);
}
__device__ inline void store_one(void* data, DType dtype, std::int64_t i, float value) {
  if (dtype == DType::fp32) {
    static_cast<float*>(data)[i] = value;
  } else {
    static_cast<std::uint16_t*>(data)[i] = narrow_bits(value, dtype);
  }
}

/// Processes a cut with all threads of the grid, whose blocks consist of whole warps. `work` has
///
///   struct Loaded;
///   Loaded load(std::int64_t tile) const;                 // reads its part of the tile
///   void finish(std::int64_t tile, const Loaded&) const;  // computes and stores the results
///   void one(std::int64_t i) const;                       // processes a single element
///
/// A warp loads `AtOnce` tiles before it finishes the first.
template <int AtOnce, class Work>
__device__ void go_over(const Cut<kTile>& cut, const Work& work) {
  const std::int64_t warps = index_stride() / 32;
  for (std::int64_t t = first_index() / 32; t < cut.tiles; t += AtOnce * warps) {
    typename Work::Loaded loaded[AtOnce];
#pragma unroll
    for (int a = 0; a < AtOnce; ++a) {
      if (t + a * warps < cut.tiles) { loaded[a] = work.load(cut.tile(t + a * warps)); }
    }
#pragma unroll
    for (int a = 0; a < AtOnce; ++a) {
      if (t + a * warps < cut.tiles) { work.finish(cut.tile(t + a * warps), loaded[a]); }
    }
  }
  for (std::int64_t i = first_index(); i < cut.singles; i += index_stride()) {
    work.one(cut.single(i));
  }
}

template <int AtOnce, class Work>
__global__ void over_tiles(Cut<kTile> cut, Work work) {
  go_over<AtOnce>(cut, work);
}

/// The grid for go_over.
[[nodiscard]] inline Grid grid_for(const Cut<kTile>& cut,
                                   unsigned threads = tessera::cuda::kBlockThreads) noexcept {
  return grid_for(std::max(cut.tiles * 32, cut.singles), threads);
}

/// Launches a kernel that does `work`, which reads and writes `arrays`, two tiles at once: each
/// thread has 32 bytes of a 16-bit array in flight. With 1,024 threads resident on each of an
/// H200's 132 multiprocessors that is 4.3 MB; 4.8 TB/s at a latency of 0.7 us need 3.4 MB.
template <class Work>
void launch_over(const Work& work, std::int64_t elems, std::span<const ConstValues> arrays,
                 Stream stream) {
  const Cut<kTile> parts = cut<kTile>(elems, arrays);
  launch(over_tiles<2, Work>, grid_for(parts), cuda_stream(stream).open(), parts, work);
}

}  // namespace tessera::kernels::cuda
