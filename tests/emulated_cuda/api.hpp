#pragma once

#include <cuda_runtime_api.h>

namespace emulated_cuda {

/// What a call of this name is to fail with this time, because a test or a broken device says so.
[[nodiscard]] cudaError_t failure_of(const char* call);

/// `status` becomes the calling thread's last error, unless it is cudaSuccess.
cudaError_t report(cudaError_t status);

/// The calling thread's device.
[[nodiscard]] int current_device();

/// Every function of the API runs in here.
template <class Body>
cudaError_t api(const char* call, Body&& body) {
  cudaError_t status = failure_of(call);
  if (status == cudaSuccess) { status = body(); }
  return report(status);
}

}  // namespace emulated_cuda
