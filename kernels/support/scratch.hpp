#pragma once

#include <cstddef>
#include <memory>
#include <new>

namespace tessera::kernels {

/// Memory that a thread works in and keeps for later calls: meant to be thread_local.
class Scratch {
 public:
  /// Returns at least `bytes`, aligned to 64; the content is undefined. Invalidates what was
  /// returned before.
  [[nodiscard]] void* reserve(std::size_t bytes) {
    if (bytes > bytes_) {
      memory_.reset();
      bytes_ = 0;
      memory_.reset(static_cast<std::byte*>(::operator new(bytes, kAlign)));
      bytes_ = bytes;
    }
    return memory_.get();
  }

 private:
  static constexpr std::align_val_t kAlign{64};
  struct Free {
    void operator()(std::byte* memory) const noexcept { ::operator delete(memory, kAlign); }
  };
  std::unique_ptr<std::byte, Free> memory_;
  std::size_t bytes_ = 0;
};

}  // namespace tessera::kernels
