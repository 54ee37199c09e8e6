#pragma once

// Precedes the module's header of this name: C++ has no arrays whose size a launch sets.
#include "emulated_cuda/block.hpp"

namespace tessera::cuda {

inline void* dynamic_shared() {
  return emulated_cuda::block_dynamic_shared();
}

}  // namespace tessera::cuda
