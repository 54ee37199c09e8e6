#include "device/cuda/cuda_use.hpp"

#include <cuda_runtime_api.h>

#include <map>
#include <mutex>
#include <optional>

#include "device/cuda/cuda_check.hpp"
#include "device/cuda/cuda_nvml.hpp"

namespace tessera::cuda {
namespace {

/// The state of a device when this process first used it.
struct Arrival {
  DeviceUse::Of of{};
  std::size_t before_bytes = 0;  // used by others, from NVML
  std::size_t context_bytes = 0;
  std::size_t library_bytes = 0;
};

// CUDA keeps one context a device for the whole process, until it ends, and so does this.
struct Arrivals {
  std::mutex mutex;
  std::map<int, Arrival> by_ordinal;
};
Arrivals& arrivals() {
  static Arrivals all;
  return all;
}

/// Bytes used by all processes on the calling thread's device.
std::size_t used_now() {
  DeviceMemory memory;
  check(cudaMemGetInfo(&memory.free_bytes, &memory.total_bytes), "cudaMemGetInfo");
  return memory.total_bytes - memory.free_bytes;
}

std::size_t beyond(std::size_t bytes, std::size_t before) {
  return bytes > before ? bytes - before : 0;
}

Arrival arrive(int ordinal) {
  const std::string uuid = uuid_of(ordinal);
  const std::optional<std::size_t> before = nvml::used_bytes(uuid);
  use_device(ordinal);
  const std::size_t used = used_now();  // with a context, which any thread may have made
  if (const auto mine = nvml::used_by_process_bytes(uuid)) {
    return {DeviceUse::Of::process, 0, *mine};
  }
  if (const auto after = before ? nvml::used_bytes(uuid) : std::nullopt) {
    return {DeviceUse::Of::newcomers, *before, beyond(*after, *before)};
  }
  return {DeviceUse::Of::everybody, 0, used};
}

}  // namespace

std::string uuid_of(int ordinal) {
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, ordinal), "cudaGetDeviceProperties");
  constexpr char digits[] = "0123456789abcdef";
  std::string text = "GPU-";
  for (int i = 0; i < 16; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) { text += '-'; }
    const auto byte = static_cast<unsigned char>(properties.uuid.bytes[i]);
    text += digits[byte >> 4U];
    text += digits[byte & 15U];
  }
  return text;
}

void enter_device(int ordinal) {
  Arrivals& all = arrivals();
  const std::scoped_lock lock{all.mutex};
  if (all.by_ordinal.contains(ordinal)) { return use_device(ordinal); }
  all.by_ordinal.emplace(ordinal, arrive(ordinal));
}

DeviceUse use_of(int ordinal) {
  Arrivals& all = arrivals();
  const std::scoped_lock lock{all.mutex};
  const Arrival& arrival = all.by_ordinal.at(ordinal);
  use_device(ordinal);
  const std::string uuid = uuid_of(ordinal);
  DeviceUse use{uuid, arrival.of, 0, arrival.context_bytes, arrival.library_bytes};
  switch (arrival.of) {
    case DeviceUse::Of::process:
      use.used_bytes = nvml::used_by_process_bytes(uuid).value_or(0);
      break;
    case DeviceUse::Of::newcomers:
      use.used_bytes = beyond(nvml::used_bytes(uuid).value_or(0), arrival.before_bytes);
      break;
    case DeviceUse::Of::everybody:
      use.used_bytes = used_now();
      break;
  }
  return use;
}

void start_library(const std::function<void()>& start) {
  int ordinal = 0;
  check(cudaGetDevice(&ordinal), "cudaGetDevice");
  Arrivals& all = arrivals();
  const std::scoped_lock lock{all.mutex};
  const std::size_t before = used_now();
  start();
  all.by_ordinal[ordinal].library_bytes += beyond(used_now(), before);
}

}  // namespace tessera::cuda
