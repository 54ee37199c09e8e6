#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "tessera/device/device.hpp"

namespace tessera {

/// How much of a device's memory is in use, as well as its machine can tell.
struct DeviceUse {
  /// Whose memory `used_bytes` counts.
  enum class Of : std::uint8_t {
    process,    ///< this process's, by NVML
    newcomers,  ///< all processes', less what was in use before this process came to the device
    everybody,  ///< all processes', since nothing tells them apart
  };
  /// Identifies the device: the same in every process, and unique (a GPU's UUID).
  std::string id;
  Of of = Of::everybody;       ///< whose memory is counted
  std::size_t used_bytes = 0;  ///< in use now, including the three parts that follow
  /// The part that was in use when this process had come to the device, before it asked for any
  /// memory: the driver's context and CUDA's own, and under Of::everybody what others held then.
  std::size_t context_bytes = 0;
  /// The part that libraries (cuBLASLt) took when they were started.
  std::size_t library_bytes = 0;
  /// The part that memory which the communicator uses directly takes beyond what was asked for.
  std::size_t rounding_bytes = 0;
  /// How the communicator uses that memory, for people; empty if it has nothing to say.
  std::string communicated = {};
};

/// Asks what is in use of `device`; no value for a device without memory of its own, whose memory
/// is the process's. DeviceError if CUDA fails. Threads: one at a time, as for Device.
[[nodiscard]] std::optional<DeviceUse> use_of(const Device& device);

}  // namespace tessera
