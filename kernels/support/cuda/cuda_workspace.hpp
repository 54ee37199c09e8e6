#pragma once

#include <cstddef>
#include <cstdint>

#include "device/stream_state.hpp"
#include "tessera/base/error.hpp"
#include "tessera/device/stream.hpp"

namespace tessera::kernels::cuda {

/// A stream's workspace, cut into arrays from its start on. A kernel's function owns them until it
/// returns: later work on the stream may overwrite them.
class WorkspaceCut {
 public:
  explicit WorkspaceCut(Stream stream) noexcept : space_{stream.state()->workspace()} {}

  /// Returns an array aligned to 256 bytes. ContractError if too little is left, or if the stream
  /// has no workspace.
  template <class T>
  [[nodiscard]] T* take(std::int64_t elems) {
    const std::size_t bytes = (static_cast<std::size_t>(elems) * sizeof(T) + 255) / 256 * 256;
    expects(space_.data != nullptr && bytes <= space_.bytes,
            "a kernel needs a larger workspace than its stream was lent");
    T* const taken = static_cast<T*>(space_.data);
    space_.data = static_cast<std::byte*>(space_.data) + bytes;
    space_.bytes -= bytes;
    return taken;
  }

  [[nodiscard]] std::size_t left_bytes() const noexcept { return space_.bytes; }

 private:
  device::StreamWorkspace space_;
};

}  // namespace tessera::kernels::cuda
