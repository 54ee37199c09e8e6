#include "device/cuda/cuda_nvml.hpp"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <limits>
#include <type_traits>
#include <vector>

// A build for tests names a double instead.
#ifndef TESSERA_NVML
#define TESSERA_NVML "libnvidia-ml.so.1"
#endif

namespace tessera::cuda::nvml {
namespace {

// The parts of the library's binary interface that are used, from its reference: not every toolkit
// has its header.
struct DeviceHandle;
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

constexpr int kSuccess = 0;
constexpr int kInsufficientSize = 7;
constexpr unsigned kMemoryInfoVersion = sizeof(MemoryInfo) | 2U << 24U;
constexpr unsigned long long kNotAvailable = std::numeric_limits<unsigned long long>::max();
constexpr int kSmClock = 1;
constexpr int kMemoryClock = 2;

using Init = int();
using DriverVersion = int(char* text, unsigned length);
using HandleByUuid = int(const char* uuid, DeviceHandle** device);
using GetMemory = int(DeviceHandle* device, MemoryInfo* memory);
using GetProcesses = int(DeviceHandle* device, unsigned* count, ProcessInfo* processes);
using GetClock = int(DeviceHandle* device, int clock, unsigned* mhz);

/// The started library, open until the process ends. Functions that a version lacks are null.
class Library {
 public:
  static const Library& get() {
    static const Library library;
    return library;
  }

  DriverVersion* driver_version = nullptr;
  GetMemory* memory = nullptr;
  GetProcesses* processes = nullptr;
  GetClock* clock = nullptr;

  [[nodiscard]] DeviceHandle* device(const std::string& uuid) const {
    DeviceHandle* device = nullptr;
    // CUDA gives a part of a GPU (MIG) its own UUID, without saying that it is one.
    for (const char* kind : {"", "MIG-"}) {
      const std::string name = *kind == '\0' ? uuid : kind + uuid.substr(uuid.find('-') + 1);
      if (by_uuid_ != nullptr && by_uuid_(name.c_str(), &device) == kSuccess) { return device; }
    }
    return nullptr;
  }

 private:
  Library() {
    void* const handle = dlopen(TESSERA_NVML, RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) { return; }
    auto* const init = reinterpret_cast<Init*>(dlsym(handle, "nvmlInit_v2"));
    if (init == nullptr || init() != kSuccess) { return; }
    const auto find = [&](auto*& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(handle, name));
    };
    find(driver_version, "nvmlSystemGetDriverVersion");
    find(by_uuid_, "nvmlDeviceGetHandleByUUID");
    find(memory, "nvmlDeviceGetMemoryInfo_v2");
    find(processes, "nvmlDeviceGetComputeRunningProcesses_v3");
    find(clock, "nvmlDeviceGetClockInfo");
  }

  HandleByUuid* by_uuid_ = nullptr;
};

/// Empty if there is no answer.
std::vector<ProcessInfo> processes_on(const std::string& uuid) {
  const Library& library = Library::get();
  DeviceHandle* const device = library.device(uuid);
  if (device == nullptr || library.processes == nullptr) { return {}; }
  std::vector<ProcessInfo> all(64);
  for (int attempt = 0; attempt < 4; ++attempt) {
    auto count = static_cast<unsigned>(all.size());
    const int status = library.processes(device, &count, all.data());
    if (status == kSuccess) {
      all.resize(std::min<std::size_t>(count, all.size()));
      return all;
    }
    if (status != kInsufficientSize) { return {}; }
    all.resize(std::size_t{2} * count);  // more may start between the two calls
  }
  return {};
}

}  // namespace

std::optional<std::size_t> used_bytes(const std::string& uuid) {
  const Library& library = Library::get();
  DeviceHandle* const device = library.device(uuid);
  MemoryInfo memory{};
  memory.version = kMemoryInfoVersion;
  if (device == nullptr || library.memory == nullptr ||
      library.memory(device, &memory) != kSuccess) {
    return {};
  }
  return memory.used;
}

std::optional<std::size_t> used_by_process_bytes(const std::string& uuid) {
  const auto mine = static_cast<unsigned>(::getpid());
  for (const ProcessInfo& process : processes_on(uuid)) {
    if (process.pid == mine && process.used_bytes != kNotAvailable) { return process.used_bytes; }
  }
  return {};
}

std::optional<std::string> driver_version() {
  const Library& library = Library::get();
  std::array<char, 96> text{};
  if (library.driver_version == nullptr ||
      library.driver_version(text.data(), text.size()) != kSuccess) {
    return {};
  }
  return text.data();
}

std::optional<Clocks> clocks(const std::string& uuid) {
  const Library& library = Library::get();
  DeviceHandle* const device = library.device(uuid);
  Clocks now;
  if (device == nullptr || library.clock == nullptr ||
      library.clock(device, kSmClock, &now.sm_mhz) != kSuccess ||
      library.clock(device, kMemoryClock, &now.memory_mhz) != kSuccess) {
    return {};
  }
  return now;
}

}  // namespace tessera::cuda::nvml
