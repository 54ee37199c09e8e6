#pragma once

#include <new>
#include <type_traits>

#include "tessera/device/device.hpp"

namespace tessera::device {

/// A small T in host memory that a device copies to and from beside the host's own work
/// (Device::allocate_host), for what a step brings back to the host. Not counted. A device that
/// only counts has a T too.
template <class T>
class HostBlock {
  static_assert(std::is_trivially_destructible_v<T>);

 public:
  explicit HostBlock(Device& device)
      : device_{device},
        memory_{device.computes() ? device.allocate_host(sizeof(T)) : nullptr},
        value_{memory_ == nullptr ? &own_ : ::new(memory_) T{}} {}
  HostBlock(const HostBlock&) = delete;
  HostBlock& operator=(const HostBlock&) = delete;
  ~HostBlock() {
    if (memory_ != nullptr) { device_.free_host(memory_, sizeof(T)); }
  }

  [[nodiscard]] T* get() noexcept { return value_; }
  [[nodiscard]] T* operator->() noexcept { return value_; }
  [[nodiscard]] const T& operator*() const noexcept { return *value_; }

 private:
  Device& device_;
  void* memory_;
  T own_{};
  T* value_;
};

}  // namespace tessera::device
