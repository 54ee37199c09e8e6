// The driver functions that the module gets through the runtime.
#include <cudaTypedefs.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string_view>
#include <thread>
#include <utility>

#include "emulated_cuda/api.hpp"
#include "emulated_cuda/memory.hpp"
#include "emulated_cuda/stream.hpp"

namespace emulated_cuda {
namespace {

CUresult address_range(CUdeviceptr* begin, std::size_t* bytes, CUdeviceptr data) {
  const auto taken = taken_by(reinterpret_cast<const void*>(data));
  if (!taken) { return CUDA_ERROR_NOT_FOUND; }
  *begin = reinterpret_cast<std::uintptr_t>(taken->begin);
  *bytes = taken->bytes;
  return CUDA_SUCCESS;
}

bool is_aligned(CUdeviceptr address) {
  return address % sizeof(std::uint32_t) == 0;
}

/// Memory that a device may read while the host writes it.
bool is_seen_by_devices(CUdeviceptr address) {
  const auto* const data = reinterpret_cast<const void*>(address);
  return is_pinned(data) || is_allocated(data, sizeof(std::uint32_t));
}

/// Compares cyclically: a word that has wrapped around counts as the larger one.
bool has_come_to(std::uint32_t word, std::uint32_t value) {
  return static_cast<std::int32_t>(word - value) >= 0;
}

void wait_until(CUdeviceptr address, std::uint32_t value) {
  const std::atomic_ref<std::uint32_t> word{*reinterpret_cast<std::uint32_t*>(address)};
  while (!has_come_to(word.load(std::memory_order_acquire), value)) {
    std::this_thread::sleep_for(std::chrono::microseconds{20});
  }
}

/// cuStreamWaitValue32 of CUDA 12.
CUresult wait_value(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned flags) {
  const cudaError_t status = api("cuStreamWaitValue32", [&] {
    if (!is_stream(stream)) { return cudaErrorInvalidResourceHandle; }
    if (flags != CU_STREAM_WAIT_VALUE_GEQ) { return cudaErrorInvalidValue; }
    if (!is_aligned(address) || !is_seen_by_devices(address)) { return cudaErrorInvalidValue; }
    Task task;
    task.name = "cuStreamWaitValue32";
    task.access = Task::Access::all;
    task.work = [=] { wait_until(address, value); };
    const std::scoped_lock lock{capture_mutex()};
    if (stream->capture) {
      invalidate(*stream);
      return cudaErrorStreamCaptureUnsupported;
    }
    stream->push(std::move(task));
    return cudaSuccess;
  });
  return static_cast<CUresult>(status);  // the runtime and the driver number these errors alike
}

void* function_called(std::string_view name) {
  if (name == "cuMemGetAddressRange") { return reinterpret_cast<void*>(&address_range); }
  if (name == "cuStreamWaitValue32") { return reinterpret_cast<void*>(&wait_value); }
  return nullptr;
}

cudaError_t find(const char* symbol, void** function, cudaDriverEntryPointQueryResult* found) {
  return api("cudaGetDriverEntryPoint", [&] {
    *function = function_called(symbol);
    if (found != nullptr) {
      *found =
          *function == nullptr ? cudaDriverEntryPointSymbolNotFound : cudaDriverEntryPointSuccess;
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
