// What the runtime gives of the driver: the one function of it that the module asks for.
#include <cudaTypedefs.h>

#include <cstdint>
#include <string_view>

#include "emulated_cuda/api.hpp"
#include "emulated_cuda/memory.hpp"

namespace emulated_cuda {
namespace {

CUresult address_range(CUdeviceptr* begin, std::size_t* bytes, CUdeviceptr data) {
  const auto taken = taken_by(reinterpret_cast<const void*>(data));
  if (!taken) { return CUDA_ERROR_NOT_FOUND; }
  *begin = reinterpret_cast<std::uintptr_t>(taken->begin);
  *bytes = taken->bytes;
  return CUDA_SUCCESS;
}

cudaError_t find(const char* symbol, void** function, cudaDriverEntryPointQueryResult* found) {
  return api("cudaGetDriverEntryPoint", [&] {
    const bool known = std::string_view{symbol} == "cuMemGetAddressRange";
    *function = known ? reinterpret_cast<void*>(&address_range) : nullptr;
    if (found != nullptr) {
      *found = known ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
    }
    return cudaSuccess;
  });
}

}  // namespace
}  // namespace emulated_cuda

#if CUDART_VERSION >= 12050
cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function,
                                             unsigned int /*version*/, unsigned long long /*flags*/,
                                             cudaDriverEntryPointQueryResult* found) {
  return emulated_cuda::find(symbol, function, found);
}
#else
cudaError_t cudaGetDriverEntryPoint(const char* symbol, void** function,
                                    unsigned long long /*flags*/,
                                    cudaDriverEntryPointQueryResult* found) {
  return emulated_cuda::find(symbol, function, found);
}
#endif
