#pragma once

#include <chrono>
#include <cstdint>

namespace tessera {

/// Delays of random length before and after each collective, each copy between device and host
/// pool, and each piece of work in the host pool, so that tests find races. A delay depends only on
/// the seed, the rank, the channel and the number of the call on it: it is the same in every run.
struct DelayInjection {
  std::uint64_t seed = 1;                  ///< the seed of the random lengths
  std::chrono::microseconds longest{300};  ///< the longest delay; the shortest is 0
};

}  // namespace tessera
