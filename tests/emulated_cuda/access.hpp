#pragma once

#include <cstdint>

namespace emulated_cuda {

/// Maximum number of devices: the processor has 16 protection keys, and the first covers all other
/// memory.
inline constexpr int kMostDevices = 8;

/// Whether this processor can protect device memory from host threads. Without this, the memory is
/// unprotected.
[[nodiscard]] bool protects();

/// The protection key of a device's memory; -1 if the processor has no keys.
[[nodiscard]] int key_of(int device);

/// During its lifetime the calling thread may touch the memory of the devices in `mask` (bit 0 for
/// device 0) only.
class ScopedAccess {
 public:
  explicit ScopedAccess(std::uint32_t mask);
  ~ScopedAccess();
  ScopedAccess(const ScopedAccess&) = delete;
  ScopedAccess& operator=(const ScopedAccess&) = delete;

  static constexpr std::uint32_t kAll = 0xFFFFFFFFU;
  static constexpr std::uint32_t kNone = 0;

 private:
  std::uint32_t before_;
};

}  // namespace emulated_cuda
