#pragma once

#include <cstddef>

#include "tessera/device/device.hpp"

namespace tessera::kernels {

/// Size of the StreamWorkspace that kernels use on a compute stream of such a device, for any
/// shapes: 32 MiB on CUDA, which cuBLASLt wants on Hopper. A kernel that needs more works in
/// pieces. A CPU needs none.
[[nodiscard]] constexpr std::size_t stream_workspace_bytes(DeviceKind kind) noexcept {
  return kind == DeviceKind::cuda ? std::size_t{32} << 20U : 0;
}

}  // namespace tessera::kernels
