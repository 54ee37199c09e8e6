// A double of the part of NVML that the module uses. Not every toolkit has NVML's header, so the
// types are declared here as in its reference.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "emulated_cuda/memory.hpp"
#include "emulated_cuda/settings.hpp"

using emulated_cuda::device_bytes;
using emulated_cuda::settings;

namespace {

constexpr int kSuccess = 0;
constexpr int kInvalidArgument = 2;
constexpr int kNotFound = 6;
constexpr int kInsufficientSize = 7;
constexpr int kLibraryNotFound = 12;

struct MemoryInfo {
  unsigned version;
  unsigned long long total;
  unsigned long long reserved;
  unsigned long long free;
  unsigned long long used;
};
struct ProcessInfo {
  unsigned pid;
  unsigned long long used_bytes;
  unsigned gpu_instance;
  unsigned compute_instance;
};

/// A handle is the device's number plus 1.
int device_of(void* handle) {
  return static_cast<int>(reinterpret_cast<std::uintptr_t>(handle)) - 1;
}

}  // namespace

extern "C" {

int nvmlInit_v2() {
  return settings().nvml > 0 ? kSuccess : kLibraryNotFound;
}

int nvmlSystemGetDriverVersion(char* text, unsigned length) {
  std::snprintf(text, length, "999.99 (emulated)");
  return kSuccess;
}

int nvmlDeviceGetHandleByUUID(const char* uuid, void** device) {
  constexpr std::string_view first = "GPU-00000000-0000-0000-0000-0000000000";
  const std::string_view text = uuid;
  if (text.size() != first.size() + 2 || text.substr(0, first.size()) != first) {
    return kNotFound;
  }
  const long number = std::strtol(uuid + first.size(), nullptr, 16);
  if (number >= settings().devices) { return kNotFound; }
  *device = reinterpret_cast<void*>(static_cast<std::uintptr_t>(number) + 1);
  return kSuccess;
}

int nvmlDeviceGetMemoryInfo_v2(void* device, MemoryInfo* memory) {
  if (memory->version != (sizeof(MemoryInfo) | 2U << 24U)) { return kInvalidArgument; }
  const emulated_cuda::DeviceBytes bytes = device_bytes(device_of(device));
  memory->total = bytes.total;
  memory->free = bytes.free;
  memory->reserved = 0;
  memory->used = bytes.total - bytes.free;
  return kSuccess;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void* device, unsigned* count, ProcessInfo* processes) {
  const bool tells = settings().nvml > 1 && device_bytes(device_of(device)).entered;
  const unsigned needed = tells ? 1 : 0;
  if (*count < needed) {
    *count = needed;
    return kInsufficientSize;
  }
  *count = needed;
  if (tells) {
    processes[0] = {static_cast<unsigned>(::getpid()), device_bytes(device_of(device)).own, 0, 0};
  }
  return kSuccess;
}

int nvmlDeviceGetClockInfo(void* /*device*/, int clock, unsigned* mhz) {
  *mhz = clock == 2 ? 2619 : 1980;
  return kSuccess;
}
}
