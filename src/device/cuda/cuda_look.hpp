#pragma once

namespace tessera::cuda {

/// The number of devices that this process may use. Throws ConfigError, with CUDA's reason, if
/// there is none.
[[nodiscard]] int device_count();

/// Throws ConfigError, with what to build, if this module holds no code for a device.
void require_code(int ordinal);

}  // namespace tessera::cuda
