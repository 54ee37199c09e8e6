#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

// Words in pinned memory by which the device signals the host: this holds up no stream with a host
// function, and works in a graph.
namespace tessera::cuda {

/// Whether the device has written to `flag`.
[[nodiscard]] inline bool is_raised(const std::uint32_t* flag) noexcept {
  return *static_cast<const volatile std::uint32_t*>(flag) != 0;
}

/// Words of pinned memory, freed on destruction.
class PinnedFlags {
 public:
  /// `count` words, undefined.
  explicit PinnedFlags(std::size_t count);
  PinnedFlags(PinnedFlags&& other) noexcept;
  PinnedFlags& operator=(PinnedFlags&&) = delete;
  ~PinnedFlags();

  [[nodiscard]] std::uint32_t* at(std::size_t i) const noexcept { return words_ + i; }
  /// Reads the word as the device left it.
  [[nodiscard]] bool is_raised(std::size_t i) const noexcept { return cuda::is_raised(at(i)); }

 private:
  std::uint32_t* words_ = nullptr;
};

/// Sets *flag = 1 when the stream gets there.
void launch_raise(std::uint32_t* flag, cudaStream_t stream);

/// Sets *failed = 1 if any byte is not `value`.
void launch_fill_check(const unsigned char* data, unsigned char value, std::size_t bytes,
                       std::uint32_t* failed, cudaStream_t stream);

}  // namespace tessera::cuda
