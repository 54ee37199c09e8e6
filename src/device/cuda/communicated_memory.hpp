#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "tessera/device/device.hpp"

namespace tessera::cuda {

/// Gives memory of a kind that a communicator moves data from and to without copies of its own.
///
/// Threads: any.
class CommunicatedMemory {
 public:
  virtual ~CommunicatedMemory() = default;
  CommunicatedMemory(const CommunicatedMemory&) = delete;
  CommunicatedMemory& operator=(const CommunicatedMemory&) = delete;

  /// On the calling thread's device. Null where there is none of this kind: any will do then.
  [[nodiscard]] virtual void* allocate(std::size_t bytes) = 0;
  /// False if it is not from here.
  [[nodiscard]] virtual bool free(void* data) noexcept = 0;
  /// What it takes of the device now beyond what was asked for.
  [[nodiscard]] virtual std::size_t rounding_bytes() const = 0;
  /// How it is used now, for people.
  [[nodiscard]] virtual std::string text() const = 0;

 protected:
  CommunicatedMemory() = default;
};

/// From now on `device`, a CUDA device, takes what is to be communicated from `memory`.
void take_communicated_from(std::shared_ptr<CommunicatedMemory> memory, Device& device);

}  // namespace tessera::cuda
