#include <array>

#include "kernels/cast/cast.hpp"
#include "kernels/support/cuda/cuda_tile.cuh"

namespace tessera::kernels::cuda {
namespace {

struct CastWork {
  Values to;
  ConstValues from;

  using Loaded = Bits;
  __device__ Bits load(std::int64_t tile) const { return load_tile(from.data, from.dtype, tile); }
  __device__ void finish(std::int64_t tile, const Bits& bits) const {
    store_nearest(to.data, to.dtype, tile, unpack(bits, from.dtype));
  }
  __device__ void one(std::int64_t i) const {
    store_one(to.data, to.dtype, i, load_one(from.data, from.dtype, i));
  }
};

}  // namespace

void cast(View to, ConstView from, Stream stream) {
  expects(to.elems == from.elems, "cast: both sides have as many elements");
  expects(to.dtype != DType::fp64 && from.dtype != DType::fp64, "cast: fp64 is not converted");
  const cudaStream_t cuda = cuda_stream(stream).open();
  if (to.elems == 0) { return; }
  if (to.dtype == from.dtype) {
    tessera::cuda::check(
        cudaMemcpyAsync(to.data, from.data, to.bytes(), cudaMemcpyDeviceToDevice, cuda),
        "cudaMemcpyAsync");
    return;
  }
  launch_over(CastWork{to.values(), from.values()}, to.elems,
              std::array{ConstValues{to.values()}, from.values()}, stream);
}

}  // namespace tessera::kernels::cuda
