#pragma once

#include <functional>

#include "tessera/device/stream.hpp"

namespace tessera::kernels {

/// Runs `work`, a user's, when the stream has come there: on the CPU as a task like any kernel, and
/// not at all on a device that only counts. On CUDA it runs at once: what it enqueues on the stream
/// is in order. What it throws ends the stream.
using CallKernel = void(std::function<void()> work, Stream stream);

namespace cpu {
CallKernel call;
}
namespace cuda {
CallKernel call;
}

}  // namespace tessera::kernels
