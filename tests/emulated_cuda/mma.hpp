#pragma once

#include <array>
#include <cstdint>

// What a warp does together with tensor cores, as PTX defines it (cuda_mma.cuh says where elements
// lie). Sums of products are made in double precision and rounded once.
namespace emulated_cuda {

enum class MmaType : std::uint8_t { bf16, fp16 };

/// Called by all lanes of a warp.
void warp_mma(MmaType type, float (&c)[4], const std::uint32_t (&a)[4],
              std::array<std::uint32_t, 2> b);
void warp_load(std::uint32_t (&to)[4], const void* row, bool transposed);

}  // namespace emulated_cuda
