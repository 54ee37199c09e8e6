#pragma once

#include <cstdint>

namespace emulated_cuda {

/// Devices at most: the processor has 16 protection keys, of which the first is everything's.
inline constexpr int kMostDevices = 8;

/// Whether this processor can keep threads of the host from device memory. Where it cannot, they
/// are not kept from it.
[[nodiscard]] bool protects();

/// The protection key of a device's memory; -1 where there are none.
[[nodiscard]] int key_of(int device);

/// While it lives, the calling thread may touch the memory of the devices in `mask` (bit 0 for
/// device 0), and of no other.
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
