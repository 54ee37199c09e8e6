#pragma once

#include "bench/cuda/rig.hpp"

namespace tessera::bench {

/// Times the work that `enqueue` puts on the stream, and a copy on the device that moves as many
/// bytes, counting reads and writes.
[[nodiscard]] KernelContest moving(Rig& rig, const std::function<void()>& enqueue);

}  // namespace tessera::bench
