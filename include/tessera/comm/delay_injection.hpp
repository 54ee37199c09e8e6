#pragma once

#include <chrono>
#include <cstdint>

namespace tessera {

/// Delays of random length before and after each collective and each copy between the pools, to
/// show races. Test instrument.
struct DelayInjection {
  std::uint64_t seed = 1;
  std::chrono::microseconds longest{300};
};

}  // namespace tessera
