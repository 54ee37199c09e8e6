#pragma once

namespace tessera::cuda {

/// The driver's function `name` as of CUDA 12.0; null if this driver lacks it.
[[nodiscard]] void* driver_function(const char* name);

}  // namespace tessera::cuda
