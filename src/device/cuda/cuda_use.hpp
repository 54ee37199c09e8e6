#pragma once

#include <functional>
#include <string>

#include "tessera/device/device_use.hpp"

namespace tessera::cuda {

/// "GPU-0123...": as CUDA tells it of the device, and NVML writes it.
[[nodiscard]] std::string uuid_of(int ordinal);

/// Makes `ordinal` the calling thread's device. The first time in this process CUDA makes its
/// context there, and what that takes is noted. Threads: any.
void enter_device(int ordinal);

/// What this process, or all of them, hold of the device. It has been entered. Threads: any.
[[nodiscard]] DeviceUse use_of(int ordinal);

/// Runs `start`, which starts a library on the calling thread's device, and notes what of the
/// device's memory that takes. Threads: any, one after another.
void start_library(const std::function<void()>& start);

}  // namespace tessera::cuda
