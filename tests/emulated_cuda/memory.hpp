#pragma once

#include <cstddef>
#include <optional>
#include <string>

namespace emulated_cuda {

/// Allocates device memory. Each allocation has its own pages between inaccessible ones, at
/// addresses that are never reused, so accesses beyond its end or after its release are detected.
/// Fresh memory is full of 0xFF.
///
/// Threads: any. `unit`: sizes taken from the device's memory are multiples of it.
[[nodiscard]] void* allocate_device(int device, std::size_t bytes,
                                    std::size_t unit = 512);  // null: the device is full
/// False if `data` is not the start of an allocation. Ends the process if something was written
/// around it.
[[nodiscard]] bool free_device(void* data);

struct DeviceBytes {
  std::size_t free = 0;
  std::size_t total = 0;
  std::size_t own = 0;   ///< memory of this process, including its context
  bool entered = false;  ///< this process has a context
};
[[nodiscard]] DeviceBytes device_bytes(int device);
/// Creates this process's context on the device. It takes Settings::context_bytes.
void make_context(int device);

/// Page-locked memory of the host, full of 0xFF.
[[nodiscard]] void* allocate_pinned(std::size_t bytes);
[[nodiscard]] bool free_pinned(void* data);
[[nodiscard]] bool is_pinned(const void* data);

/// The device whose address range contains `data`, allocated or not; empty for host memory.
[[nodiscard]] std::optional<int> device_of(const void* data);
/// Whether the whole range lies in one live device allocation.
[[nodiscard]] bool is_allocated(const void* data, std::size_t bytes);
/// Device memory that an allocation takes.
struct Taken {
  const void* begin = nullptr;
  std::size_t bytes = 0;
};
/// The live allocation that contains `data`, if there is one.
[[nodiscard]] std::optional<Taken> taken_by(const void* data);
/// "8 bytes behind the end of an allocation of 64 bytes of device 0", for messages.
[[nodiscard]] std::string describe(const void* data);

}  // namespace emulated_cuda
