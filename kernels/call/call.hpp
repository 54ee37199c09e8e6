#pragma once

#include <functional>

#include "tessera/device/stream.hpp"

namespace tessera::kernels {

/// Runs `work`, a user's, when the stream has come there: on the CPU as a task like any kernel, and
/// not at all on a device that only counts. What it throws ends the stream.
using CallKernel = void(std::function<void()> work, Stream stream);

namespace cpu {
CallKernel call;
}

}  // namespace tessera::kernels
