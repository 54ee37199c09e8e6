#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include "tessera/comm/batch.hpp"

namespace tessera::comm::nccl {

/// A rank's part in the batches of a communicator of `ranks`.
struct BatchPart {
  int rank;
  int ranks;
  cudaStream_t stream;
};

/// Copies what NCCL does not move: the root's own part of a gather.
void copy_own_parts(const Batch& batch, const BatchPart& part);

/// Makes NCCL's call for each entry of `batch`, within a group. NCCL detects in-place calls by the
/// addresses.
void make_calls(const Batch& batch, ncclComm_t comm, const BatchPart& part);

}  // namespace tessera::comm::nccl
