#pragma once

#include <array>
#include <cstdint>

// A warp's matrix products on tensor cores, as PTX defines them (cuda_mma.cuh describes the layout
// of elements). Sums are computed in double precision and rounded once.
namespace emulated_cuda {

enum class MmaType : std::uint8_t { bf16, fp16 };

/// Called by all lanes of a warp.
void warp_mma(MmaType type, float (&c)[4], const std::uint32_t (&a)[4],
              std::array<std::uint32_t, 2> b);
void warp_load(std::uint32_t (&to)[4], const void* row, bool transposed);

}  // namespace emulated_cuda
