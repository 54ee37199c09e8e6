#include "device/cuda/cuda_driver.hpp"

#include <cuda_runtime_api.h>

namespace tessera::cuda {
namespace {

cudaError_t find(const char* name, void** function, cudaDriverEntryPointQueryResult* found) {
#if CUDART_VERSION >= 12050
  return cudaGetDriverEntryPointByVersion(name, function, 12000, cudaEnableDefault, found);
#else
  return cudaGetDriverEntryPoint(name, function, cudaEnableDefault, found);
#endif
}

}  // namespace

void* driver_function(const char* name) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found{};
  const cudaError_t status = find(name, &function, &found);
  if (status == cudaSuccess && found == cudaDriverEntryPointSuccess) { return function; }
  (void)cudaGetLastError();
  return nullptr;
}

}  // namespace tessera::cuda
