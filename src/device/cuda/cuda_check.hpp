#pragma once

#include <cuda_runtime_api.h>

#include "tessera/base/error.hpp"

namespace tessera::cuda {

/// Throws DeviceError with CUDA's name of `status`, the call and its place, unless it is
/// cudaSuccess. `call` is a literal: "cudaEventRecord".
void check(cudaError_t status, const char* call, CallSite where = CallSite::here());

/// Makes `ordinal` the calling thread's device: kernels are launched and memory is allocated there.
void use_device(int ordinal);

}  // namespace tessera::cuda
