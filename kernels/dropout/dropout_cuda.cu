#include <algorithm>
#include <array>
#include <cstddef>

#include "kernels/dropout/dropout.hpp"
#include "kernels/dropout/mask_key.hpp"
#include "kernels/support/cuda/cuda_tile.cuh"

namespace tessera::kernels::cuda {
namespace {

/// Arguments that all threads of a call share.
struct Masks {
  std::array<std::uint32_t, 2> key;
  std::uint32_t threshold;
  float factor;

  /// The words of elements [4 group, 4 group + 4) of a sample.
  __device__ std::array<std::uint32_t, 4> words(std::uint64_t sample, std::uint64_t group) const {
    return philox4x32(
        {static_cast<std::uint32_t>(group), static_cast<std::uint32_t>(group >> 32U),
         static_cast<std::uint32_t>(sample), static_cast<std::uint32_t>(sample >> 32U)},
        key);
  }
  __device__ float drop(float x, std::uint32_t word) const {
    return word < threshold ? 0.0F : x * factor;
  }
};

/// One sample: x and y point to its first element.
struct DropoutWork {
  const void* x;
  void* y;
  DType dtype;
  Masks masks;
  std::uint64_t sample;
  std::int64_t first_elem;

  using Loaded = Bits;
  __device__ Bits load(std::int64_t tile) const { return load_tile(x, dtype, tile); }
  __device__ void finish(std::int64_t tile, const Bits& bits) const {
    Eight values = unpack(bits, dtype);
    for (int group = 0; group < 2; ++group) {
      const auto first = static_cast<std::uint64_t>(first_elem + tile + place(4 * group));
      const auto words = masks.words(sample, first / 4);
      for (int i = 0; i < 4; ++i) {
        float& value = values.at[4 * group + i];
        value = masks.drop(value, words[static_cast<std::size_t>(i)]);
      }
    }
    store_nearest(y, dtype, tile, values);
  }
  __device__ void one(std::int64_t i) const {
    const auto word = static_cast<std::uint64_t>(first_elem + i);
    store_one(y, dtype, i,
              masks.drop(load_one(x, dtype, i), masks.words(sample, word / 4)[word % 4]));
  }
};

// The grid's y dimension counts samples, its x dimension the tiles of one.
__global__ void dropout_kernel(const std::byte* x, std::byte* y, DType dtype, std::int64_t samples,
                               std::int64_t sample_bytes, std::uint64_t first_sample,
                               std::int64_t first_elem, Masks masks, Cut<kTile> cut) {
  for (std::int64_t s = blockIdx.y; s < samples; s += gridDim.y) {
    go_over<1>(cut, DropoutWork{x + s * sample_bytes, y + s * sample_bytes, dtype, masks,
                                first_sample + static_cast<std::uint64_t>(s), first_elem});
  }
}

/// The cut of each sample: tiles only if all samples start at multiples of 16 bytes and four
/// elements take the words of one counter.
Cut<kTile> cut_samples(const Dropout& args) {
  const std::int64_t elems = args.sample_elems;
  const std::array<ConstValues, 4> starts{args.x, args.x.at(elems), args.y, args.y.at(elems)};
  const Cut<kTile> parts = cut<kTile>(elems, starts);
  return parts.head == 0 && args.first_elem % 4 == 0 ? parts : Cut<kTile>{elems, 0, elems};
}

constexpr std::int64_t kMostSamples = 64;  // at once

}  // namespace

void dropout(const Dropout& args, Stream stream) {
  expects(args.x.dtype == args.y.dtype, "dropout: x and y are of one dtype");
  const cudaStream_t cuda = cuda_stream(stream).open();
  if (args.samples == 0) { return; }
  const Cut<kTile> parts = cut_samples(args);
  Grid grid = grid_for(parts);
  grid.blocks_y = static_cast<unsigned>(std::min<std::int64_t>(args.samples, kMostSamples));
  launch(dropout_kernel, grid, cuda, args.x.as<std::byte>(), args.y.as<std::byte>(), args.x.dtype,
         args.samples, args.sample_elems * static_cast<std::int64_t>(size_of(args.x.dtype)),
         static_cast<std::uint64_t>(args.key.first_sample), args.first_elem,
         Masks{mask_key(args.key), args.threshold(), args.factor()}, parts);
}

}  // namespace tessera::kernels::cuda
