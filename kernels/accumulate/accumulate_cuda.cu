#include <array>

#include "kernels/accumulate/accumulate.hpp"
#include "kernels/support/cuda/cuda_tile.cuh"

namespace tessera::kernels::cuda {
namespace {

struct AccumulateWork {
  Values to;
  ConstValues from;

  struct Loaded {
    Bits sum, more;
  };
  __device__ Loaded load(std::int64_t tile) const {
    return {load_tile(to.data, to.dtype, tile), load_tile(from.data, from.dtype, tile)};
  }
  __device__ void finish(std::int64_t tile, const Loaded& loaded) const {
    Eight sum = unpack(loaded.sum, to.dtype);
    const Eight more = unpack(loaded.more, from.dtype);
    for (int i = 0; i < 8; ++i) { sum.at[i] += more.at[i]; }
    store_nearest(to.data, to.dtype, tile, sum);
  }
  __device__ void one(std::int64_t i) const {
    store_one(to.data, to.dtype, i,
              load_one(to.data, to.dtype, i) + load_one(from.data, from.dtype, i));
  }
};

struct ScaleWork {
  Values to;
  float factor;

  using Loaded = Bits;
  __device__ Bits load(std::int64_t tile) const { return load_tile(to.data, to.dtype, tile); }
  __device__ void finish(std::int64_t tile, const Bits& bits) const {
    Eight product = unpack(bits, to.dtype);
    for (int i = 0; i < 8; ++i) { product.at[i] *= factor; }
    store_nearest(to.data, to.dtype, tile, product);
  }
  __device__ void one(std::int64_t i) const {
    store_one(to.data, to.dtype, i, load_one(to.data, to.dtype, i) * factor);
  }
};

}  // namespace

void accumulate(Values to, ConstValues from, std::int64_t elems, Stream stream) {
  launch_over(AccumulateWork{to, from}, elems, std::array{ConstValues{to}, from}, stream);
}

void scale(Values to, float factor, std::int64_t elems, Stream stream) {
  launch_over(ScaleWork{to, factor}, elems, std::array{ConstValues{to}}, stream);
}

}  // namespace tessera::kernels::cuda
