#pragma once

namespace tessera::cuda {

/// That this process may use. ConfigError, with CUDA's reason, if none can be used.
[[nodiscard]] int device_count();

/// ConfigError, with what to build, if this module holds no code for a device.
void require_code(int ordinal);

}  // namespace tessera::cuda
