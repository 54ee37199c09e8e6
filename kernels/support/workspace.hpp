#pragma once

#include <cstddef>

#include "tessera/device/device.hpp"

namespace tessera::kernels {

/// What kernels on a compute stream of such a device work in (StreamWorkspace), whatever the
/// shapes: 32 MiB on CUDA, which is what cuBLASLt wants on Hopper. Who has more to hold goes over
/// it in pieces. None on a CPU.
[[nodiscard]] constexpr std::size_t stream_workspace_bytes(DeviceKind kind) noexcept {
  return kind == DeviceKind::cuda ? std::size_t{32} << 20U : 0;
}

}  // namespace tessera::kernels
