#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "tessera/device/device.hpp"

namespace tessera::cuda {

/// Allocates memory that a communicator moves data from and to without copies of its own.
///
/// Threads: any.
class CommunicatedMemory {
 public:
  virtual ~CommunicatedMemory() = default;
  CommunicatedMemory(const CommunicatedMemory&) = delete;
  CommunicatedMemory& operator=(const CommunicatedMemory&) = delete;

  /// On the calling thread's device. Null if there is no such memory: any other memory will do
  /// then.
  [[nodiscard]] virtual void* allocate(std::size_t bytes) = 0;
  /// Returns false if `data` was not allocated here.
  [[nodiscard]] virtual bool free(void* data) noexcept = 0;
  /// Bytes of the device that it now takes beyond what was requested.
  [[nodiscard]] virtual std::size_t rounding_bytes() const = 0;
  /// A text for people on how it is used now.
  [[nodiscard]] virtual std::string text() const = 0;

 protected:
  CommunicatedMemory() = default;
};

/// From now on `device`, a CUDA device, takes memory for communication from `memory`.
void take_communicated_from(std::shared_ptr<CommunicatedMemory> memory, Device& device);

}  // namespace tessera::cuda
