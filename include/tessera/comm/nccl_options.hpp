#pragma once

namespace tessera {

/// What NCCL is asked for beyond its own choices. It needs ranks that NCCL joins, and a library
/// that can do it: ConfigError names what is missing.
struct NcclOptions {
  /// Thread blocks (CTAs) that a collective takes at least and at most, from 1 to 64; 0 leaves it
  /// to NCCL. Fewer leave more of a device to the kernels beside it; more move data faster. NCCL
  /// may add in another order then. It needs NCCL 2.17.
  int min_ctas = 0;
  int max_ctas = 0;
  /// Whether arenas are registered as symmetric windows, for which NCCL has kernels of its own,
  /// instead of each rank for itself. Arenas that the ranks have not made alike wait until they
  /// have. What else keeps an arena from it ends the run with CommError. It needs NCCL 2.27.
  bool windows = false;
};

}  // namespace tessera
