#pragma once

#include <cstddef>
#include <span>

namespace emulated_cuda {

/// Shared memory limit of a block on a device of the emulated capability.
[[nodiscard]] std::size_t most_shared_bytes();

/// Whether a launch may give blocks of `kernel` this many bytes in addition to its declared arrays.
/// The limit is 48 KiB in total unless cudaFuncSetAttribute allows more on this device.
[[nodiscard]] bool may_have_shared(const void* kernel, int device, std::size_t bytes);
/// False if this exceeds the device's limit.
[[nodiscard]] bool allow_shared(const void* kernel, int device, std::size_t bytes);

/// A launch's shared memory for blocks on the calling thread. It ends just before an inaccessible
/// page.
class DynamicShared {
 public:
  explicit DynamicShared(std::size_t bytes);
  ~DynamicShared();
  DynamicShared(const DynamicShared&) = delete;
  DynamicShared& operator=(const DynamicShared&) = delete;

  /// Fills it with 0xFF; called before each block.
  void poison() const;
  /// Ends the process if something was written around it; called after each block.
  void check_surroundings() const;
  [[nodiscard]] void* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  [[nodiscard]] bool fences(const void* address) const noexcept;

 private:
  std::size_t bytes_;
  std::byte* pages_ = nullptr;  ///< between two inaccessible pages
  std::size_t page_bytes_ = 0;
  std::byte* data_ = nullptr;
};

/// The running grid's; empty if its launch gave it none.
[[nodiscard]] std::span<const std::byte> given_shared();

/// Whether `address` is in the pages around the running grid's shared memory.
[[nodiscard]] bool is_beyond_dynamic_shared(const void* address);

}  // namespace emulated_cuda
