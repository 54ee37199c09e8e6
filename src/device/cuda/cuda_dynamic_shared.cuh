#pragma once

#include <cuda_runtime.h>

namespace tessera::cuda {

/// The shared memory that a launch gave to each block (Grid::shared_bytes), aligned to 16 bytes:
/// for kernels whose arguments determine its size. Its initial contents are undefined.
__device__ inline void* dynamic_shared() {
  extern __shared__ uint4 bytes[];
  return bytes;
}

}  // namespace tessera::cuda
