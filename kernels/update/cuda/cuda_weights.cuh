#pragma once

#include <cstdint>

#include "kernels/support/cuda/cuda_tile.cuh"
#include "kernels/support/master_parts.hpp"
#include "kernels/update/update_run.hpp"

// The weights of a run on a GPU, with masters whole or in two halves.
namespace tessera::kernels::cuda {

/// Issues the loads of a tile's weights: the masters, or parameters in the first four words and
/// remainders in the other four, of the same total size.
__device__ inline Bits load_weights(const UpdateRun& run, std::int64_t tile) {
  if (run.remainder == nullptr) { return load_tile(run.master, DType::fp32, tile); }
  Bits halves = load_tile(run.parameter.data, DType::bf16, tile);
  const Bits remainder = load_tile(run.remainder, DType::bf16, tile);
  for (int i = 0; i < 4; ++i) { halves.at[i + 4] = remainder.at[i]; }
  return halves;
}

/// Converts what load_weights has read to numbers. All lanes of a warp call it together.
__device__ inline Eight unpack_weights(const UpdateRun& run, Bits bits) {
  if (run.remainder == nullptr) { return unpack(bits, DType::fp32); }
  Bits remainder;
  for (int i = 0; i < 4; ++i) { remainder.at[i] = bits.at[i + 4]; }
  exchange(bits);
  exchange(remainder);
  Eight out;
  for (int i = 0; i < 8; ++i) {
    const int shift = 16 * (i % 2);
    out.at[i] = join_master(static_cast<std::uint16_t>(bits.at[i / 2] >> shift),
                            static_cast<std::uint16_t>(remainder.at[i / 2] >> shift));
  }
  return out;
}

/// The bits of a 16-bit parameter.
__device__ inline std::uint16_t narrow_parameter(float x, DType dtype) {
  return dtype == DType::bf16 ? parameter_bits(x) : narrow_bits(x, dtype);
}

/// Stores a tile of parameters, rounded to nearest. All lanes of a warp call it together.
__device__ inline void store_parameters(Values to, std::int64_t tile, const Eight& weights) {
  const auto narrow = [&](int, float x) { return narrow_parameter(x, to.dtype); };
  store_tile(to.data, to.dtype, tile, pack(weights, to.dtype, narrow));
}

__device__ inline float load_one_weight(const UpdateRun& run, std::int64_t i) {
  if (run.remainder == nullptr) { return run.master[i]; }
  return join_master(static_cast<const std::uint16_t*>(run.parameter.data)[i], run.remainder[i]);
}

}  // namespace tessera::kernels::cuda
