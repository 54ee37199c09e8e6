#pragma once

#include "tools/measure/collectives.hpp"

namespace tessera::bench {

/// For measure_collectives: ranks that share CUDA devices, where their kernels read each other's
/// buffers. The limit is every rank copying the same bytes on the device at once.
[[nodiscard]] CollectivePlace device_memory();

}  // namespace tessera::bench
