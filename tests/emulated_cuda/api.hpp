#pragma once

#include <cuda_runtime_api.h>

namespace emulated_cuda {

/// The error with which this call of `call` must fail, because of a test or a broken device.
[[nodiscard]] cudaError_t failure_of(const char* call);

/// Records `status` as the calling thread's last error, unless it is cudaSuccess.
cudaError_t report(cudaError_t status);

/// The calling thread's device.
[[nodiscard]] int current_device();

/// Every API function runs its body through this.
template <class Body>
cudaError_t api(const char* call, Body&& body) {
  cudaError_t status = failure_of(call);
  if (status == cudaSuccess) { status = body(); }
  return report(status);
}

}  // namespace emulated_cuda
