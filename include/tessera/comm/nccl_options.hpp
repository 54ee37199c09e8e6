#pragma once

namespace tessera {

/// Settings that override NCCL's own choices. ConfigError names what is missing if the ranks do not
/// use NCCL or its version lacks a setting.
struct NcclOptions {
  /// The least number of thread blocks (CTAs) of a collective, from 1 to 64; 0 leaves it to NCCL.
  /// More of them move data faster. NCCL may then add in another order. Needs NCCL 2.17.
  int min_ctas = 0;
  /// The greatest number of thread blocks (CTAs) of a collective, from 1 to 64; 0 leaves it to
  /// NCCL. Fewer of them leave more of the device to concurrent kernels. NCCL may then add in
  /// another order. Needs NCCL 2.17.
  int max_ctas = 0;
  /// Whether arenas are registered as symmetric windows, for which NCCL has special kernels,
  /// instead of on each rank separately. An arena is registered once every rank has made its own;
  /// any other obstacle ends the run with CommError. Needs NCCL 2.27.
  bool windows = false;
};

}  // namespace tessera
