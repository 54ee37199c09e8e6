#pragma once

#include <cstdint>
#include <string>

namespace emulated_cuda::races {

/// Whose memory an address is.
enum class Space : std::uint8_t {
  own,     ///< of one thread, or of the emulation
  shared,  ///< of the block
  global,
};

/// The calling host thread's addresses.
class Spaces {
 public:
  Spaces();

  void use_stack(const void* bottom, std::size_t bytes) noexcept {
    stack_ = reinterpret_cast<std::uintptr_t>(bottom);
    stack_bytes_ = bytes;
  }
  [[nodiscard]] Space of(const void* data) const noexcept {
    const auto at = reinterpret_cast<std::uintptr_t>(data);
    if (at - stack_ < stack_bytes_) { return Space::own; }
    if (at - arrays_ < arrays_bytes_) { return of_thread_local(at); }
    return at - given_ < given_bytes_ ? Space::shared : Space::global;
  }
  /// "shared memory `kernel(int*)::array` + 4", "byte 8 of an allocation of 64 bytes of device 0".
  [[nodiscard]] std::string describe(const void* data) const;

 private:
  /// Shared arrays are thread-local, as are threadIdx and its like.
  static Space of_thread_local(std::uintptr_t at) noexcept;

  std::uintptr_t stack_ = 0;
  std::size_t stack_bytes_ = 0;
  std::uintptr_t arrays_ = 0;  // the module's thread-local memory
  std::size_t arrays_bytes_ = 0;
  std::uintptr_t given_ = 0;  // the launch's shared memory
  std::size_t given_bytes_ = 0;
};

}  // namespace emulated_cuda::races
