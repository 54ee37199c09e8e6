#pragma once

#include "bench/cuda/rig.hpp"

namespace tessera::bench {

/// The cost of a kernel besides its work, in seconds.
struct LaunchCost {
  double host = 0;    ///< to enqueue it
  double device = 0;  ///< from one kernel of a graph to the next
};

/// The median over `rounds` of `kernels` tiny kernels, one after the other.
[[nodiscard]] LaunchCost measure_launches(Rig& rig, int rounds, int kernels);

}  // namespace tessera::bench
