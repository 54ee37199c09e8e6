#pragma once

#include <cstddef>

namespace emulated_cuda {

/// The most that a block may have of shared memory on a device of the emulated capability.
[[nodiscard]] std::size_t most_shared_bytes();

/// Whether a launch may give blocks of `kernel` so much, beside the arrays that it declares: 48 KiB
/// together unless cudaFuncSetAttribute has allowed more on this device.
[[nodiscard]] bool may_have_shared(const void* kernel, int device, std::size_t bytes);
/// False: it would be more than the device has.
[[nodiscard]] bool allow_shared(const void* kernel, int device, std::size_t bytes);

/// The shared memory that a launch gives the grid's blocks on the calling thread. It ends just
/// before an inaccessible page.
class DynamicShared {
 public:
  explicit DynamicShared(std::size_t bytes);
  ~DynamicShared();
  DynamicShared(const DynamicShared&) = delete;
  DynamicShared& operator=(const DynamicShared&) = delete;

  /// Before each block: fills it with 0xFF.
  void poison() const;
  /// Behind each block: ends the process if something was written around it.
  void check_surroundings() const;
  [[nodiscard]] void* data() const noexcept { return data_; }
  [[nodiscard]] bool fences(const void* address) const noexcept;

 private:
  std::size_t bytes_;
  std::byte* pages_ = nullptr;  ///< between two inaccessible pages
  std::size_t page_bytes_ = 0;
  std::byte* data_ = nullptr;
};

/// Whether `address` is in the pages around the running grid's.
[[nodiscard]] bool is_beyond_dynamic_shared(const void* address);

}  // namespace emulated_cuda
