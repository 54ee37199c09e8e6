#pragma once

#include <functional>

#include "tessera/device/stream.hpp"

namespace tessera::kernels {

/// Runs a user's `work` when the stream reaches it: on the CPU as a task like any kernel, and not
/// at all on a device that only counts. On CUDA it runs at once: what it enqueues on the stream is
/// in order. An exception from `work` ends the stream.
using CallKernel = void(std::function<void()> work, Stream stream);

namespace cpu {
CallKernel call;
}
namespace cuda {
CallKernel call;
}

}  // namespace tessera::kernels
