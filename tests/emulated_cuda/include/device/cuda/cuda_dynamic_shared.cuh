#pragma once

// Stands before the module's header of this name: C++ has no arrays whose size a launch gives.
#include "emulated_cuda/block.hpp"

namespace tessera::cuda {

inline void* dynamic_shared() {
  return emulated_cuda::block_dynamic_shared();
}

}  // namespace tessera::cuda
