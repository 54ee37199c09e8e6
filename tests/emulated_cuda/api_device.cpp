#include <algorithm>
#include <cstdio>
#include <string>

#include "emulated_cuda/access.hpp"
#include "emulated_cuda/api.hpp"
#include "emulated_cuda/dynamic_shared.hpp"
#include "emulated_cuda/fault_handler.hpp"
#include "emulated_cuda/memory.hpp"
#include "emulated_cuda/settings.hpp"
#include "emulated_cuda/stream.hpp"
#include "emulated_cuda/symbols.hpp"
#include "emulated_cuda/task.hpp"

namespace emulated_cuda {
namespace {

constinit thread_local int device_of_thread = 0;

bool is_device(int device) {
  return device >= 0 && device < settings().devices;
}

}  // namespace

int current_device() {
  return device_of_thread;
}

}  // namespace emulated_cuda

using namespace emulated_cuda;

cudaError_t cudaGetDeviceCount(int* count) {
  return api("cudaGetDeviceCount", [&] {
    install_fault_handler();
    *count = settings().devices;
    return settings().devices > 0 ? cudaSuccess : cudaErrorNoDevice;
  });
}

cudaError_t cudaSetDevice(int device) {
  return api("cudaSetDevice", [&] {
    if (!is_device(device)) { return cudaErrorInvalidDevice; }
    install_fault_handler();
    make_context(device);
    device_of_thread = device;
    return cudaSuccess;
  });
}

cudaError_t cudaGetDevice(int* device) {
  return api("cudaGetDevice", [&] {
    *device = device_of_thread;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceSynchronize() {
  return api("cudaDeviceSynchronize", [] {
    wait_for_device(device_of_thread);
    return cudaSuccess;
  });
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  return api("cudaRuntimeGetVersion", [&] {
    *version = CUDART_VERSION;
    return cudaSuccess;
  });
}

cudaError_t cudaDriverGetVersion(int* version) {
  return api("cudaDriverGetVersion", [&] {
    *version = CUDART_VERSION;
    return cudaSuccess;
  });
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  return api("cudaGetDeviceProperties", [&] {
    if (!is_device(device)) { return cudaErrorInvalidDevice; }
    *properties = {};
    std::snprintf(properties->name, sizeof properties->name, "Emulated CUDA device");
    properties->totalGlobalMem = device_bytes(device).total;
    for (int i = 0; i < 16; ++i) {  // "GPU-00000000-0000-0000-0000-00000000000d" of device d
      properties->uuid.bytes[i] = static_cast<char>(i == 15 ? device : 0);
    }
    properties->major = settings().capability / 10;
    properties->minor = settings().capability % 10;
    properties->multiProcessorCount = settings().multiprocessors;
    properties->warpSize = 32;
    properties->maxThreadsPerBlock = 1024;
    properties->maxThreadsPerMultiProcessor = 2048;
    properties->sharedMemPerBlock = std::size_t{48} << 10U;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  return api("cudaDeviceGetAttribute", [&] {
    if (!is_device(device)) { return cudaErrorInvalidDevice; }
    switch (attribute) {
      case cudaDevAttrMultiProcessorCount:
        *value = settings().multiprocessors;
        return cudaSuccess;
      case cudaDevAttrMaxSharedMemoryPerBlockOptin:
        *value = static_cast<int>(most_shared_bytes());
        return cudaSuccess;
      case cudaDevAttrComputeCapabilityMajor:
        *value = settings().capability / 10;
        return cudaSuccess;
      case cudaDevAttrComputeCapabilityMinor:
        *value = settings().capability % 10;
        return cudaSuccess;
      case cudaDevAttrMaxThreadsPerBlock:
        *value = 1024;
        return cudaSuccess;
      default:
        return cudaErrorInvalidValue;
    }
  });
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* kernel,
                                                          int threads, size_t shared_bytes) {
  return api("cudaOccupancyMaxActiveBlocksPerMultiprocessor", [&] {
    if (kernel == nullptr) { return cudaErrorInvalidDeviceFunction; }
    if (threads < 1 || threads > 1024) { return cudaErrorInvalidValue; }
    constexpr std::size_t reserved = 1024;  // reserved per block
    const std::size_t of_block = declared_shared_bytes(kernel) + shared_bytes + reserved;
    *blocks = std::min(
        {2048 / threads, 32, static_cast<int>((most_shared_bytes() + reserved) / of_block)});
    return cudaSuccess;
  });
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* kernel) {
  return api("cudaFuncGetAttributes", [&] {
    if (attributes == nullptr || kernel == nullptr) { return cudaErrorInvalidDeviceFunction; }
    *attributes = {};
    attributes->sharedSizeBytes = possible_shared_bytes(kernel);
    return cudaSuccess;
  });
}

cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value) {
  return api("cudaFuncSetAttribute", [&] {
    if (kernel == nullptr) { return cudaErrorInvalidDeviceFunction; }
    if (attribute == cudaFuncAttributePreferredSharedMemoryCarveout) {
      return value >= -1 && value <= 100 ? cudaSuccess : cudaErrorInvalidValue;
    }
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize || value < 0) {
      return cudaErrorInvalidValue;
    }
    return allow_shared(kernel, device_of_thread, static_cast<std::size_t>(value))
               ? cudaSuccess
               : cudaErrorInvalidValue;
  });
}

cudaError_t cudaDeviceGetPCIBusId(char* text, int bytes, int device) {
  return api("cudaDeviceGetPCIBusId", [&] {
    if (!is_device(device)) { return cudaErrorInvalidDevice; }
    std::snprintf(text, static_cast<std::size_t>(bytes), "0000:%02d:00.0", device);
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  return api("cudaDeviceCanAccessPeer", [&] {
    if (!is_device(device) || !is_device(peer)) { return cudaErrorInvalidDevice; }
    *can = device == peer ? 0 : 1;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
  return api("cudaDeviceEnablePeerAccess", [&] {
    if (flags != 0) { return cudaErrorInvalidValue; }
    if (!is_device(peer) || peer == device_of_thread) { return cudaErrorInvalidDevice; }
    return enable_peer(device_of_thread, peer) ? cudaSuccess : cudaErrorPeerAccessAlreadyEnabled;
  });
}
