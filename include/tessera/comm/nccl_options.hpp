#pragma once

namespace tessera {

/// Settings that override NCCL's own choices. They need ranks that NCCL joins, and a version of
/// NCCL that has them: ConfigError names what is missing.
struct NcclOptions {
  /// The least and the greatest number of thread blocks (CTAs) of a collective, from 1 to 64; 0
  /// leaves it to NCCL. Fewer leave more of the device to concurrent kernels; more move data
  /// faster. NCCL may then add in another order. Needs NCCL 2.17.
  int min_ctas = 0;
  int max_ctas = 0;
  /// Whether arenas are registered as symmetric windows, for which NCCL has special kernels,
  /// instead of on each rank separately. Arenas that the ranks have not made alike wait until they
  /// have. What else keeps an arena from it ends the run with CommError. Needs NCCL 2.27.
  bool windows = false;
};

}  // namespace tessera
