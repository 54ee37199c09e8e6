#pragma once

#include <cuda_runtime.h>

namespace tessera::cuda {

/// The shared memory of a block that its launch gave it (Grid::shared_bytes), from a multiple of 16
/// bytes on: for kernels that have their size from the arguments. Nothing is in it at first.
__device__ inline void* dynamic_shared() {
  extern __shared__ uint4 bytes[];
  return bytes;
}

}  // namespace tessera::cuda
