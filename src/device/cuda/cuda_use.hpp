#pragma once

#include <functional>
#include <string>

#include "tessera/device/device_use.hpp"

namespace tessera::cuda {

/// "GPU-0123...": as CUDA reports it for the device, and NVML writes it.
[[nodiscard]] std::string uuid_of(int ordinal);

/// Makes `ordinal` the calling thread's device. The first call in this process makes CUDA's context
/// there, and notes what that takes. Threads: any.
void enter_device(int ordinal);

/// What this process, or all processes, hold of the device. Call enter_device first. Threads: any.
[[nodiscard]] DeviceUse use_of(int ordinal);

/// Runs `start`, which starts a library on the calling thread's device, and notes how much device
/// memory that takes. Threads: any, one after another.
void start_library(const std::function<void()>& start);

}  // namespace tessera::cuda
