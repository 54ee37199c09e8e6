#pragma once

#include <cstdint>

#include "bench/support/collectives.hpp"

namespace tessera::bench {

/// As measure_collectives, with ranks that share CUDA devices: their kernels read each other's
/// buffers. A time is of kRepeats of them one after the other; the limit is copies on the device of
/// as many bytes by every rank at once.
[[nodiscard]] std::vector<Comparison> measure_collectives_on_device(
    const CollectiveOptions& options);

}  // namespace tessera::bench
