#pragma once

namespace tessera::cuda {

/// That this process may use. ConfigError, with CUDA's reason, if none can be used.
[[nodiscard]] int device_count();

}  // namespace tessera::cuda
