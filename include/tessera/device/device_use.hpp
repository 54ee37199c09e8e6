#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "tessera/device/device.hpp"

namespace tessera {

/// What is in use of a device's memory, as well as its machine can tell.
struct DeviceUse {
  /// Whose memory is meant.
  enum class Of : std::uint8_t {
    process,    ///< this process's: NVML tells
    newcomers,  ///< everybody's, less what was in use before this process came to the device
    everybody,  ///< of all processes, as nothing tells them apart
  };
  /// The same in every process, and of no other device: a GPU's UUID.
  std::string id;
  Of of = Of::everybody;
  std::size_t used_bytes = 0;
  /// Of these: in use when this process had come to the device, before it asked for any memory. The
  /// driver's context and CUDA's own; under Of::everybody also what others held then.
  std::size_t context_bytes = 0;
  /// Of these: what libraries (cuBLASLt) took when they were started.
  std::size_t library_bytes = 0;
  /// Of these: what memory that the communicator can use directly takes beyond what was asked for.
  std::size_t rounding_bytes = 0;
  /// How the communicator uses that memory, for people; empty if it has nothing to say.
  std::string communicated = {};
};

/// Of a device with memory of its own; nothing of others, whose memory is the process's.
/// Errors: DeviceError. Threads: as Device.
[[nodiscard]] std::optional<DeviceUse> use_of(const Device& device);

}  // namespace tessera
