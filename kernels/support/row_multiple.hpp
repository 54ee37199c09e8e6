#pragma once

#include <cstdint>

#include "tessera/device/device.hpp"

namespace tessera::kernels {

inline constexpr std::int64_t kCudaRowMultiple = 64;

/// Products on such a device are fast if their numbers of rows and columns are multiples of this.
/// On CUDA it is 64: for 16 bits cuBLASLt has aligned kernels for multiples of 8, and 64 fill its
/// tiles (the head of GPT-2 124M on an H100: 48.1 ms for 50,257 rows, 7.0 for 50,304; see
/// docs/benchmarks/gpu.md). On a CPU it is 1.
[[nodiscard]] constexpr std::int64_t row_multiple_of(DeviceKind kind) noexcept {
  return kind == DeviceKind::cuda ? kCudaRowMultiple : 1;
}

}  // namespace tessera::kernels
