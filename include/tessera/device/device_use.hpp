#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "tessera/device/device.hpp"

namespace tessera {

/// The part of a device's memory that is in use, as precisely as the machine can tell.
struct DeviceUse {
  /// Whose memory `used_bytes` counts.
  enum class Of : std::uint8_t {
    process,    ///< this process's, by NVML
    newcomers,  ///< all processes', less what was in use before this process opened the device
    everybody,  ///< all processes', because the machine cannot separate them
  };
  /// The identity of the device, unique and the same in every process (a GPU's UUID).
  std::string id;
  Of of = Of::everybody;       ///< whose memory is counted
  std::size_t used_bytes = 0;  ///< bytes in use now, including the three parts below
  /// Bytes that were in use once this process had opened the device and before it allocated: the
  /// driver's context and CUDA's own, and under Of::everybody also other processes' memory.
  std::size_t context_bytes = 0;
  /// Bytes that libraries (cuBLASLt) took when they were started.
  std::size_t library_bytes = 0;
  /// Bytes beyond the requested sizes of memory that the communicator uses directly.
  std::size_t rounding_bytes = 0;
  /// A text for people on how the communicator uses that memory; may be empty.
  std::string communicated = {};
};

/// Returns how much memory of `device` is in use; no value for a device without memory of its own,
/// such as a CPU. Throws DeviceError if CUDA fails. Threads: one at a time, as for Device.
[[nodiscard]] std::optional<DeviceUse> use_of(const Device& device);

}  // namespace tessera
