#include <atomic>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "emulated_cuda/api.hpp"
#include "emulated_cuda/controls.hpp"
#include "emulated_cuda/memory.hpp"
#include "emulated_cuda/misuse.hpp"
#include "emulated_cuda/stream.hpp"

namespace emulated_cuda {
namespace {

enum class Place { device, host, nowhere };

/// Memory that a copy may use: within one live allocation of a device, or the host's.
Place place_of(const void* data, std::size_t bytes) {
  if (data == nullptr) { return Place::nowhere; }
  if (!device_of(data)) { return Place::host; }
  return is_allocated(data, bytes) ? Place::device : Place::nowhere;
}

bool fits(const void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  const Place target = place_of(to, bytes);
  const Place source = place_of(from, bytes);
  switch (kind) {
    case cudaMemcpyHostToHost:
      return target == Place::host && source == Place::host;
    case cudaMemcpyHostToDevice:
      return target == Place::device && source == Place::host;
    case cudaMemcpyDeviceToHost:
      return target == Place::host && source == Place::device;
    case cudaMemcpyDeviceToDevice:
      return target == Place::device && source == Place::device;
    case cudaMemcpyDefault:
      return target != Place::nowhere && source != Place::nowhere;
  }
  return false;
}

void copy(void* to, const void* from, std::size_t bytes) {
  const auto* const source = static_cast<const std::byte*>(from);
  const auto* const target = static_cast<const std::byte*>(to);
  if (source < target + bytes && target < source + bytes) {
    misuse("a copy between bytes that overlap");
  }
  std::memcpy(to, from, bytes);
}

std::atomic<std::uint64_t> pageable_copies = 0;

void count_if_pageable(const void* to, const void* from, cudaMemcpyKind kind) {
  const bool in = kind == cudaMemcpyHostToDevice && !is_pinned(from);
  const bool out = kind == cudaMemcpyDeviceToHost && !is_pinned(to);
  if (in || out) { ++pageable_copies; }
}

cudaError_t enqueue_copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                         cudaStream_t stream) {
  if (bytes == 0) { return is_stream(stream) ? cudaSuccess : cudaErrorInvalidResourceHandle; }
  if (!fits(to, from, bytes, kind)) { return cudaErrorInvalidValue; }
  count_if_pageable(to, from, kind);
  Task task;
  task.name = "cudaMemcpyAsync";
  task.access = Task::Access::all;
  task.work = [=] { copy(to, from, bytes); };
  return enqueue(stream, std::move(task), Graph::Kind::copy, kind);
}

}  // namespace
}  // namespace emulated_cuda

using namespace emulated_cuda;

std::uint64_t emulated_cuda_pageable_copies() {
  return pageable_copies;
}

cudaError_t cudaMalloc(void** data, std::size_t bytes) {
  return api("cudaMalloc", [&] {
    *data = bytes == 0 ? nullptr : allocate_device(current_device(), bytes);
    return *data == nullptr && bytes > 0 ? cudaErrorMemoryAllocation : cudaSuccess;
  });
}

cudaError_t cudaFree(void* data) {
  return api("cudaFree", [&] {
    if (data == nullptr) { return cudaSuccess; }
    const std::optional<int> device = device_of(data);
    if (!device) { return cudaErrorInvalidValue; }
    wait_for_device(*device);
    return free_device(data) ? cudaSuccess : cudaErrorInvalidValue;
  });
}

cudaError_t cudaMallocHost(void** data, std::size_t bytes) {
  return api("cudaMallocHost", [&] {
    *data = bytes == 0 ? nullptr : allocate_pinned(bytes);
    return *data == nullptr && bytes > 0 ? cudaErrorMemoryAllocation : cudaSuccess;
  });
}

cudaError_t cudaFreeHost(void* data) {
  return api("cudaFreeHost", [&] {
    if (data == nullptr) { return cudaSuccess; }
    wait_for_device(current_device());
    return free_pinned(data) ? cudaSuccess : cudaErrorInvalidValue;
  });
}

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  return api("cudaMemGetInfo", [&] {
    const DeviceBytes bytes = device_bytes(current_device());
    *free = bytes.free;
    *total = bytes.total;
    return cudaSuccess;
  });
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* data) {
  return api("cudaPointerGetAttributes", [&] {
    *attributes = {};
    attributes->device = -1;
    attributes->type = cudaMemoryTypeUnregistered;
    if (is_allocated(data, 1)) {
      attributes->type = cudaMemoryTypeDevice;
      attributes->device = *device_of(data);
      attributes->devicePointer = const_cast<void*>(data);
    } else if (is_pinned(data)) {
      attributes->type = cudaMemoryTypeHost;
      attributes->device = current_device();
      attributes->devicePointer = const_cast<void*>(data);
      attributes->hostPointer = const_cast<void*>(data);
    }
    return cudaSuccess;
  });
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  return api("cudaMemcpyAsync", [&] { return enqueue_copy(to, from, bytes, kind, stream); });
}

cudaError_t cudaMemcpyPeerAsync(void* to, int to_device, const void* from, int from_device,
                                std::size_t bytes, cudaStream_t stream) {
  return api("cudaMemcpyPeerAsync", [&] {
    if (bytes > 0 && (device_of(to) != to_device || device_of(from) != from_device)) {
      return cudaErrorInvalidValue;
    }
    return enqueue_copy(to, from, bytes, cudaMemcpyDeviceToDevice, stream);
  });
}

cudaError_t cudaMemsetAsync(void* data, int value, std::size_t bytes, cudaStream_t stream) {
  return api("cudaMemsetAsync", [&] {
    if (bytes == 0) { return is_stream(stream) ? cudaSuccess : cudaErrorInvalidResourceHandle; }
    if (place_of(data, bytes) != Place::device) { return cudaErrorInvalidValue; }
    Task task;
    task.name = "cudaMemsetAsync";
    task.access = Task::Access::all;
    task.work = [=] { std::memset(data, value, bytes); };
    return enqueue(stream, std::move(task), Graph::Kind::fill);
  });
}
