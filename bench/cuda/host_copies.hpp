#pragma once

#include <cstddef>

#include "bench/cuda/rig.hpp"

namespace tessera::bench {

/// Bytes per second of copies between the device and pinned host memory.
struct HostCopyRates {
  double in = 0;    ///< to the device
  double out = 0;   ///< to the host
  double both = 0;  ///< in each direction, while both are copied at once
};

/// The medians over `rounds` of copies of `bytes`, on a stream for each direction.
[[nodiscard]] HostCopyRates measure_host_copies(Rig& rig, int rounds, std::size_t bytes);

}  // namespace tessera::bench
