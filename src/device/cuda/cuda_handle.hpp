#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <utility>

#include "tessera/device/device.hpp"

namespace tessera::cuda {

/// Owns one CUDA handle. Destroying never throws: a call that can throw reports the error before or
/// after.
template <class Handle, cudaError_t (*Destroy)(Handle)>
class UniqueHandle {
 public:
  UniqueHandle() = default;
  explicit UniqueHandle(Handle handle) noexcept : handle_{handle} {}
  UniqueHandle(UniqueHandle&& other) noexcept : handle_{std::exchange(other.handle_, nullptr)} {}
  UniqueHandle& operator=(UniqueHandle other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~UniqueHandle() {
    if (handle_ != nullptr) { (void)Destroy(handle_); }
  }

  [[nodiscard]] Handle get() const noexcept { return handle_; }

 private:
  Handle handle_ = nullptr;
};

using StreamHandle = UniqueHandle<cudaStream_t, &cudaStreamDestroy>;
using EventHandle = UniqueHandle<cudaEvent_t, &cudaEventDestroy>;
using GraphHandle = UniqueHandle<cudaGraph_t, &cudaGraphDestroy>;
using GraphExecHandle = UniqueHandle<cudaGraphExec_t, &cudaGraphExecDestroy>;

/// Makes a stream that runs beside all others. Throws DeviceError for `high` on a device without
/// that priority.
[[nodiscard]] StreamHandle make_stream_handle(StreamPriority priority = StreamPriority::usual);

/// Whether an event knows when its stream reached it: plain events are cheaper to record and to
/// wait for.
enum class EventKind : std::uint8_t { plain, timed };
[[nodiscard]] EventHandle make_event_handle(EventKind kind = EventKind::plain);

}  // namespace tessera::cuda
