#pragma once

#include <cstdint>

namespace emulated_cuda {

/// What a lane brings to a call that its warp makes together.
struct WarpCall {
  enum Kind : std::uint8_t { sync, from_lane, up, down, exclusive_or, ballot, match };
  Kind kind = sync;
  unsigned mask = 0;
  int operand = 0;  ///< of shuffles: the lane, or by how many
  int width = 32;
  std::uint64_t value = 0;
};

/// Called by the threads of a block that runs. Returns, once every thread of the block has called
/// it, the sum of the values.
int block_barrier(int value);

/// Called by the lanes that `call.mask` names; returns what the kind of the call says.
std::uint64_t warp_call(const WarpCall& call);

/// What the running grid's launch gave each block of shared memory. Ends the process if that is
/// nothing.
void* block_dynamic_shared();

}  // namespace emulated_cuda
