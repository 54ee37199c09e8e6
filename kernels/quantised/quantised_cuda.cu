#include <algorithm>
#include <cstdint>

#include "kernels/quantised/codes.hpp"
#include "kernels/quantised/quantised.hpp"
#include "kernels/support/cuda/cuda_tile.cuh"
#include "tessera/base/math.hpp"

// A warp processes tiles of 256 elements, eight a thread, placed as in cuda_tile.cuh: a tile is a
// block of int8, a group of magnitudes, or four blocks of NF4, each of eight neighbouring lanes. It
// accesses values 16 bytes a thread, and codes as words of four bytes. Codes are looked up in
// tables that stay in the first-level cache.

namespace tessera::kernels::cuda {
namespace {

static_assert(kInt8Block == kTile && kNF4Group == kTile && 4 * kNF4Block == kTile);

__device__ const CodeMap<4> kDeviceNF4Map = make_nf4_map();
__device__ const CodeMap<8> kDeviceDynamicMap = make_dynamic_map();

/// The bytes of a thread's eight elements: four neighbours in each word.
struct EightBytes {
  std::uint32_t at[2];
};

__device__ inline EightBytes load_bytes(const void* bytes, std::int64_t tile) {
  const auto* const from = static_cast<const std::uint8_t*>(bytes) + tile;
  return {{*reinterpret_cast<const std::uint32_t*>(from + place(0)),
           *reinterpret_cast<const std::uint32_t*>(from + place(4))}};
}

/// Converts eight 4-bit codes of neighbours to those of the thread's own elements, and back, as
/// `exchange` does. All lanes of a warp call it together.
__device__ inline std::uint32_t exchange_codes(std::uint32_t codes) {
  const bool odd = threadIdx.x % 2 != 0;
  const std::uint32_t given = odd ? codes & 0xFFFFU : codes >> 16U;
  const std::uint32_t got = __shfl_xor_sync(0xFFFFFFFFU, given, 1);
  return odd ? got | (codes & 0xFFFF0000U) : (codes & 0xFFFFU) | got << 16U;
}

/// Where element i's code is in a word of eight codes, the first of two in the high bits of a byte.
__device__ constexpr int code_shift(int i) {
  return 4 * (i ^ 1);
}

/// The largest magnitude of the eight elements of each of `Lanes` neighbouring lanes.
template <int Lanes>
__device__ float largest_of(const Eight& values) {
  std::uint32_t most = 0;
  for (int i = 0; i < 8; ++i) {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(values.at[i]) & 0x7FFFFFFFU;
    most = bits > most ? bits : most;
  }
  for (int lanes = Lanes / 2; lanes > 0; lanes /= 2) {
    const std::uint32_t other = __shfl_xor_sync(0xFFFFFFFFU, most, lanes);
    most = other > most ? other : most;
  }
  return magnitude_of(most);
}

/// The elements of a quantisation: whole tiles are accessed in words, the last tile, and all where
/// arrays are not aligned, element by element. Elements beyond the end are 0.
struct Extent {
  std::int64_t elems;
  std::int64_t whole;  ///< tiles

  __device__ bool is_whole(std::int64_t tile) const { return tile < whole * kTile; }
  /// Calls visit(i, index) for each of the thread's elements.
  template <class Visit>
  __device__ void each(std::int64_t tile, const Visit& visit) const {
    for (int i = 0; i < 8; ++i) {
      if (tile + place(i) < elems) { visit(i, tile + place(i)); }
    }
  }

  __device__ Eight load(const void* values, DType dtype, std::int64_t tile) const {
    if (is_whole(tile)) { return unpack(load_tile(values, dtype, tile), dtype); }
    Eight some{};
    each(tile, [&](int i, std::int64_t at) { some.at[i] = load_one(values, dtype, at); });
    return some;
  }
  __device__ void store(void* bytes, std::int64_t tile, const EightBytes& from) const {
    auto* const to = static_cast<std::uint8_t*>(bytes);
    if (is_whole(tile)) {
      *reinterpret_cast<std::uint32_t*>(to + tile + place(0)) = from.at[0];
      *reinterpret_cast<std::uint32_t*>(to + tile + place(4)) = from.at[1];
      return;
    }
    each(tile, [&](int i, std::int64_t at) {
      to[at] = static_cast<std::uint8_t>(from.at[i / 4] >> (8 * (i % 4)));
    });
  }
  /// `codes` are eight 4-bit codes.
  __device__ void store_codes(std::uint8_t* to, std::int64_t tile, std::uint32_t codes) const {
    if (is_whole(tile)) {
      reinterpret_cast<std::uint32_t*>(to + tile / 2)[threadIdx.x % 32] = exchange_codes(codes);
      return;
    }
    each(tile, [&](int i, std::int64_t at) {
      if (i % 2 == 0) { to[at / 2] = static_cast<std::uint8_t>(codes >> (4 * i)); }
    });
  }
};

struct NF4Codes {
  NF4Quantise args;
  Extent extent;

  __device__ void tile(std::int64_t tile) const {
    const Eight values = extent.load(args.values.data, args.values.dtype, tile);
    const float absmax = largest_of<kNF4Block / 8>(values);
    const float factor = code_factor(absmax);
    std::uint32_t codes = 0;
    for (int i = 0; i < 8; ++i) {
      codes |= kDeviceNF4Map.code(values.at[i] * factor) << code_shift(i);
    }
    extent.store_codes(args.codes, tile, codes);
    const std::int64_t block = tile / kNF4Block + threadIdx.x % 32 / 8;
    if (threadIdx.x % 8 == 0 && block * kNF4Block < args.elems) { args.absmax[block] = absmax; }
  }
};

struct DynamicCodes {
  NF4QuantiseAbsmax args;
  Extent extent;

  __device__ void tile(std::int64_t tile) const {
    Eight rest = extent.load(args.absmax, DType::fp32, tile);
    for (int i = 0; i < 8; ++i) {
      rest.at[i] = tile + place(i) < args.blocks ? rest.at[i] - args.offset : 0.0F;
    }
    const float scale = largest_of<32>(rest);
    const float factor = code_factor(scale);
    EightBytes codes{};
    for (int i = 0; i < 8; ++i) {
      codes.at[i / 4] |= kDeviceDynamicMap.code(rest.at[i] * factor) << (8 * (i % 4));
    }
    extent.store(args.codes, tile, codes);
    if (threadIdx.x % 32 == 0) { args.scales[tile / kTile] = scale; }
  }
};

struct Int8Codes {
  Int8Quantise args;
  Extent extent;

  __device__ void tile(std::int64_t tile) const {
    const Eight values = extent.load(args.values.data, args.values.dtype, tile);
    const Int8Scale scale = Int8Scale::of(largest_of<32>(values));
    EightBytes codes{};
    for (int i = 0; i < 8; ++i) {
      const float x = values.at[i] * scale.factor;
      const float shifted = (x > -127.0F ? x : -127.0F) + kRoundingShift;  // a NaN becomes -127
      codes.at[i / 4] |= (std::bit_cast<std::uint32_t>(shifted) & 0xFFU) << (8 * (i % 4));
    }
    extent.store(args.codes, tile, codes);
    if (threadIdx.x % 32 == 0) { args.scales[tile / kTile] = scale.scale; }
  }
};

template <class Work>
__global__ void quantise_kernel(Work work) {
  const std::int64_t warps = index_stride() / 32;
  for (std::int64_t tile = first_index() / 32 * kTile; tile < work.extent.elems;
       tile += warps * kTile) {
    work.tile(tile);
  }
}

bool starts_at_multiple(std::uintptr_t bytes, const void* data) {
  return reinterpret_cast<std::uintptr_t>(data) % bytes == 0;
}

template <class Work, class Args>
void quantise(const Args& args, const void* values, const void* codes, std::int64_t elems,
              Stream stream) {
  const bool aligned = starts_at_multiple(16, values) && starts_at_multiple(4, codes);
  const Work work{args, {elems, aligned ? elems / kTile : 0}};
  launch(quantise_kernel<Work>, grid_for(ceil_div<std::int64_t>(elems, kTile) * 32),
         cuda_stream(stream).open(), work);
}

struct NF4Values {
  NF4Dequantise args;
  std::int64_t lead;  ///< blocks of the first block's group before it

  __device__ std::int64_t group(std::int64_t block) const { return (lead + block) / kNF4Group; }
  __device__ float absmax(std::uint8_t code, float scale) const {
    return kDeviceDynamicMap.values[code] * scale + args.from.offset;
  }

  struct Loaded {
    std::uint32_t codes;
    float scale;
    std::uint8_t absmax_code;
  };
  __device__ Loaded load(std::int64_t tile) const {
    const std::int64_t block = tile / kNF4Block + threadIdx.x % 32 / 8;
    const auto* const words = reinterpret_cast<const std::uint32_t*>(args.from.codes + tile / 2);
    return {words[threadIdx.x % 32], args.from.scales[group(block)], args.from.absmax_codes[block]};
  }
  __device__ void finish(std::int64_t tile, const Loaded& loaded) const {
    const float most = absmax(loaded.absmax_code, loaded.scale);
    const std::uint32_t codes = exchange_codes(loaded.codes);
    Eight values;
    for (int i = 0; i < 8; ++i) {
      values.at[i] = kDeviceNF4Map.values[(codes >> code_shift(i)) & 15U] * most;
    }
    store_nearest(args.to.data, args.to.dtype, tile, values);
  }
  __device__ void one(std::int64_t i) const {
    const std::int64_t block = i / kNF4Block;
    const float most = absmax(args.from.absmax_codes[block], args.from.scales[group(block)]);
    const unsigned code = args.from.codes[i / 2] >> (i % 2 == 0 ? 4 : 0) & 15U;
    store_one(args.to.data, args.to.dtype, i, kDeviceNF4Map.values[code] * most);
  }
};

struct Int8Values {
  Int8Dequantise args;
  std::int64_t lead;  ///< elements of the first element's block before it

  __device__ float scale(std::int64_t i) const { return args.from.scales[(lead + i) / kInt8Block]; }

  struct Loaded {
    EightBytes codes;
    float scale;
  };
  __device__ Loaded load(std::int64_t tile) const {
    return {load_bytes(args.from.codes, tile), scale(tile + place(0))};
  }
  __device__ void finish(std::int64_t tile, const Loaded& loaded) const {
    Eight values;
    for (int i = 0; i < 8; ++i) {
      const std::uint32_t byte = loaded.codes.at[i / 4] >> (8 * (i % 4));
      values.at[i] = static_cast<float>(static_cast<std::int8_t>(byte)) * loaded.scale;
    }
    store_nearest(args.to.data, args.to.dtype, tile, values);
  }
  __device__ void one(std::int64_t i) const {
    const auto code = static_cast<float>(args.from.codes[i]);
    store_one(args.to.data, args.to.dtype, i, code * scale(i));
  }
};

template <class Work>
void dequantise(const Work& work, const void* codes, Stream stream) {
  const std::int64_t elems = work.args.elems;
  const bool aligned = starts_at_multiple(16, work.args.to.data) && starts_at_multiple(4, codes);
  const std::int64_t tiles = aligned ? elems / kTile : 0;
  const Cut<kTile> parts{0, tiles, elems - tiles * kTile};
  launch(over_tiles<2, Work>, grid_for(parts), cuda_stream(stream).open(), parts, work);
}

}  // namespace

void nf4_quantise(const NF4Quantise& args, Stream stream) {
  quantise<NF4Codes>(args, args.values.data, args.codes, args.elems, stream);
}

void nf4_quantise_absmax(const NF4QuantiseAbsmax& args, Stream stream) {
  quantise<DynamicCodes>(args, args.absmax, args.codes, args.blocks, stream);
}

void nf4_dequantise(const NF4Dequantise& args, Stream stream) {
  const std::int64_t lead = args.from.first / kNF4Block % kNF4Group;
  dequantise(NF4Values{args, lead}, args.from.codes, stream);
}

void int8_quantise(const Int8Quantise& args, Stream stream) {
  quantise<Int8Codes>(args, args.values.data, args.codes, args.elems, stream);
}

void int8_dequantise(const Int8Dequantise& args, Stream stream) {
  dequantise(Int8Values{args, args.from.first % kInt8Block}, args.from.codes, stream);
}

}  // namespace tessera::kernels::cuda
