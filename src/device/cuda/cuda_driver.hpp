#pragma once

namespace tessera::cuda {

/// The driver's function `name` as CUDA 12.0 has it; null if this driver has none.
[[nodiscard]] void* driver_function(const char* name);

}  // namespace tessera::cuda
