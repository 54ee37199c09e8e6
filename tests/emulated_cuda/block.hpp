#pragma once

#include <cstdint>

namespace emulated_cuda {

/// What a lane brings to a call that its warp makes together.
struct WarpCall {
  enum Kind : std::uint8_t { sync, from_lane, up, down, exclusive_or, ballot, match, together };
  Kind kind = sync;
  unsigned mask = 0;
  int operand = 0;  ///< of shuffles: the lane, or by how many
  int width = 32;
  std::uint64_t value = 0;
  void (*work)(const std::uint64_t* values) = nullptr;  ///< of `together`: done once, with all 32
};

/// Called by the threads of a block that runs. Returns, once every thread of the block has called
/// it, the sum of the values.
int block_barrier(int value);

/// Called by the lanes that `call.mask` names; returns what the kind of the call says.
std::uint64_t warp_call(const WarpCall& call);

/// What the running grid's launch gave each block of shared memory. Ends the process if that is
/// nothing.
void* block_dynamic_shared();
/// Copies of the calling thread that come as late as they may: `bytes` of 16, zeros for the others.
/// Until they are finished there are NaNs in their place.
void copy_late(void* to, const void* from, int bytes);
void close_late_copies();
/// All groups but the last `groups`.
void finish_late_copies(int groups);

}  // namespace emulated_cuda
