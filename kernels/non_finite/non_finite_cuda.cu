#include <algorithm>
#include <array>
#include <cstdint>

#include "kernels/non_finite/non_finite.hpp"
#include "kernels/support/cuda/cuda_cut.cuh"
#include "kernels/support/cuda/cuda_element.cuh"
#include "kernels/support/cuda/cuda_lanes.cuh"

namespace tessera::kernels::cuda {
namespace {

/// Infinities and NaNs are the values whose exponent bits are all set.
template <int N, class Bits>
__device__ bool any_non_finite(const Bits* x, Bits exponent) {
  const Pack<Bits, N> pack = load_pack<N>(x);
  bool found = false;
  for (int i = 0; i < N; ++i) { found = found || (pack.at[i] & exponent) == exponent; }
  return found;
}

// All threads with a hit write the same number, so their order does not matter. Volatile accesses
// are atomic ones on a GPU: plain ones of several threads would be a race.
template <class Bits>
__global__ void find_kernel(const Bits* x, Bits exponent, Cut<kPack<Bits>> cut, double place,
                            volatile double* found) {
  if (*found != 0.0) { return; }
  bool any = false;
#pragma unroll 4
  for (std::int64_t i = first_index(); i < cut.tiles; i += index_stride()) {
    any |= any_non_finite<kPack<Bits>>(x + cut.tile(i), exponent);
  }
  for (std::int64_t i = first_index(); i < cut.singles; i += index_stride()) {
    any |= any_non_finite<1>(x + cut.single(i), exponent);
  }
  if (any) { *found = place; }
}

template <class Bits>
void find(ConstView x, Bits exponent, double place, double* found, cudaStream_t stream) {
  const auto parts = cut<kPack<Bits>>(x.elems, std::array{x.values()});
  launch(find_kernel<Bits>, grid_for(std::max(parts.tiles, parts.singles)), stream,
         static_cast<const Bits*>(x.data), exponent, parts, place, found);
}

}  // namespace

void find_non_finite(ConstView x, double place, double* found, Stream stream) {
  const cudaStream_t cuda = cuda_stream(stream).open();
  switch (x.dtype) {
    case DType::bf16:
      return find<std::uint16_t>(x, 0x7F80U, place, found, cuda);
    case DType::fp16:
      return find<std::uint16_t>(x, 0x7C00U, place, found, cuda);
    case DType::fp64:
      return find<std::uint64_t>(x, 0x7FF0'0000'0000'0000U, place, found, cuda);
    case DType::fp32:
      break;
  }
  find<std::uint32_t>(x, 0x7F80'0000U, place, found, cuda);
}

}  // namespace tessera::kernels::cuda
