#pragma once

#include <cstddef>
#include <optional>
#include <string>

namespace emulated_cuda {

/// Memory of a device: pages of their own between pages that nobody may touch, and addresses that
/// are never used again, so that accesses beyond an allocation's end and after its end are found.
/// Fresh memory is full of 0xFF.
///
/// Threads: any.
/// `unit`: what of the device's memory it takes is a multiple of that.
[[nodiscard]] void* allocate_device(int device, std::size_t bytes,
                                    std::size_t unit = 512);  // null: it is full
/// False if `data` is no allocation's start. Ends the process if something was written around it.
[[nodiscard]] bool free_device(void* data);

struct DeviceBytes {
  std::size_t free = 0;
  std::size_t total = 0;
  std::size_t own = 0;   ///< of this process, with its context
  bool entered = false;  ///< it has one
};
[[nodiscard]] DeviceBytes device_bytes(int device);
/// This process has a context there from now on, which takes Settings::context_bytes.
void make_context(int device);

/// Page-locked memory of the host, full of 0xFF.
[[nodiscard]] void* allocate_pinned(std::size_t bytes);
[[nodiscard]] bool free_pinned(void* data);
[[nodiscard]] bool is_pinned(const void* data);

/// The device among whose addresses `data` is, allocated or not; nothing: it is the host's.
[[nodiscard]] std::optional<int> device_of(const void* data);
/// Whether all of it lies in one live allocation of a device.
[[nodiscard]] bool is_allocated(const void* data, std::size_t bytes);
/// What an allocation takes of a device.
struct Taken {
  const void* begin = nullptr;
  std::size_t bytes = 0;
};
/// The live allocation that contains `data`, if there is one.
[[nodiscard]] std::optional<Taken> taken_by(const void* data);
/// "8 bytes behind the end of an allocation of 64 bytes of device 0", for messages.
[[nodiscard]] std::string describe(const void* data);

}  // namespace emulated_cuda
