#pragma once

#include "bench/cuda/rig.hpp"

namespace tessera::bench {

[[nodiscard]] inline double times(std::int64_t a, double b) noexcept {
  return static_cast<double>(a) * b;
}

/// Times the work that `enqueue` puts on the stream, which moves `bytes`, and a copy on the device
/// that moves as much, counting reads and writes.
[[nodiscard]] Contest moving(Rig& rig, double bytes, const std::function<void()>& enqueue);

}  // namespace tessera::bench
