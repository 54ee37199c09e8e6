#pragma once

#include <cuda_runtime_api.h>

#include <utility>

namespace tessera::cuda {

/// Owns one CUDA handle. Destroying never throws: an error there has been, or will be, reported by
/// a call that can.
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

/// Without timing, which makes recording and waiting cheaper.
[[nodiscard]] EventHandle make_event_handle();

}  // namespace tessera::cuda
