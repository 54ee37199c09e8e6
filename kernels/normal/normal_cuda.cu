#include "kernels/normal/four_normals.hpp"
#include "kernels/support/cuda/cuda_tile.cuh"

namespace tessera::kernels::cuda {
namespace {

__device__ void store_one_part(Values to, MasterPart part, std::int64_t i, float value) {
  if (part == MasterPart::value || to.dtype != DType::bf16) {
    return store_one(to.data, to.dtype, i, value);
  }
  const bool parameter = part == MasterPart::parameter;
  static_cast<std::uint16_t*>(to.data)[i] =
      parameter ? parameter_bits(value) : remainder_bits(value);
}

/// A thread computes the four numbers of a group and writes the requested ones.
__global__ void normal_kernel(Values to, MasterPart part, NormalKey key, std::int64_t first,
                              float stddev, std::int64_t elems) {
  const std::int64_t first_group = first / 4;
  const std::int64_t groups = (first + elems + 3) / 4 - first_group;
  for (std::int64_t g = first_index(); g < groups; g += index_stride()) {
    const FourNormals values = four_normals(key, static_cast<std::uint64_t>(first_group + g));
    const std::int64_t at = 4 * (first_group + g) - first;
    for (int lane = 0; lane < 4; ++lane) {
      if (at + lane < 0 || at + lane >= elems) { continue; }
      store_one_part(to, part, at + lane, stddev * values.at[lane]);
    }
  }
}

}  // namespace

void fill_normal(Values to, MasterPart part, const NormalKey& key, std::int64_t first, float stddev,
                 std::int64_t elems, Stream stream) {
  launch(normal_kernel, elems == 0 ? Grid{0} : grid_for(elems / 4 + 2), cuda_stream(stream).open(),
         to, part, key, first, stddev, elems);
}

}  // namespace tessera::kernels::cuda
