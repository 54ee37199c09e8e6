#pragma once

#include <cstdint>

namespace emulated_cuda {

/// A lane's arguments of a call by its warp.
struct WarpCall {
  enum Kind : std::uint8_t { sync, from_lane, up, down, exclusive_or, ballot, match, together };
  Kind kind = sync;
  unsigned mask = 0;
  int operand = 0;  ///< of shuffles: the lane, or the distance
  int width = 32;
  std::uint64_t value = 0;
  void (*work)(const std::uint64_t* values) = nullptr;  ///< of `together`: gets all 32 values
};

/// Called by the threads of the running block. Returns the sum of the values once every thread has
/// called it.
int block_barrier(int value);

/// Called by the lanes in `call.mask`. The kind of the call defines the result.
std::uint64_t warp_call(const WarpCall& call);

/// The shared memory that the running grid's launch gives each block. Ends the process if there is
/// none.
void* block_dynamic_shared();
/// Asynchronous copy of the calling thread that arrives as late as allowed: `bytes` of 16, and
/// zeros for the rest. The target holds NaNs until the copy is finished.
void copy_late(void* to, const void* from, int bytes);
void close_late_copies();
/// Finishes all groups except the last `groups`.
void finish_late_copies(int groups);

}  // namespace emulated_cuda
