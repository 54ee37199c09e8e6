#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

// What the device tells the host by words in pinned memory: no function of the host stands in a
// stream's way for that, nor in a graph's.
namespace tessera::cuda {

/// Whether the device has written to `flag`.
[[nodiscard]] inline bool is_raised(const std::uint32_t* flag) noexcept {
  return *static_cast<const volatile std::uint32_t*>(flag) != 0;
}

/// Words of pinned memory, which end with it.
class PinnedFlags {
 public:
  /// `count` words, undefined.
  explicit PinnedFlags(std::size_t count);
  PinnedFlags(PinnedFlags&& other) noexcept;
  PinnedFlags& operator=(PinnedFlags&&) = delete;
  ~PinnedFlags();

  [[nodiscard]] std::uint32_t* at(std::size_t i) const noexcept { return words_ + i; }
  /// As the device has left it.
  [[nodiscard]] bool is_raised(std::size_t i) const noexcept { return cuda::is_raised(at(i)); }

 private:
  std::uint32_t* words_ = nullptr;
};

/// *flag = 1 when the stream has come there.
void launch_raise(std::uint32_t* flag, cudaStream_t stream);

/// *failed = 1 if some byte is not `value`.
void launch_fill_check(const unsigned char* data, unsigned char value, std::size_t bytes,
                       std::uint32_t* failed, cudaStream_t stream);

}  // namespace tessera::cuda
