#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "device/cuda/cuda_capture.hpp"
#include "device/cuda/cuda_flags.hpp"
#include "device/cuda/cuda_handle.hpp"
#include "device/cuda/cuda_stream.hpp"

namespace tessera::comm::nccl {

/// A position in a stream: an event or, since an event within a graph cannot be queried, a flag
/// that the graph raises there.
struct StreamMark {
  cuda::EventHandle event = {};
  std::uint32_t* flag = nullptr;
  std::shared_ptr<const std::atomic<cuda::GraphFate>> graph =
      nullptr;  // the graph that contains the flag

  /// Whether it is part of a graph that was not launched yet.
  [[nodiscard]] bool is_captured() const noexcept {
    return graph != nullptr && *graph == cuda::GraphFate::captured;
  }
};

/// Marks of a rank's batches, whose events and flags are reused.
///
/// Memory:  as many flags as there are marks of graphs at a time.
/// Threads: any.
class StreamMarks {
 public:
  /// Marks the current end of `stream`.
  [[nodiscard]] StreamMark set(cuda::CudaStream& stream);
  /// Whether the stream has reached it, or never will because the graph was dropped.
  [[nodiscard]] static bool is_reached(const StreamMark& mark);
  /// Reclaims `mark`, which was reached and is no longer queried.
  void take_back(StreamMark mark);
  /// Whether any of them was part of a graph.
  [[nodiscard]] bool were_captured() const noexcept { return were_captured_; }

 private:
  [[nodiscard]] cuda::EventHandle take_event();
  [[nodiscard]] std::uint32_t* take_flag();

  std::atomic<bool> were_captured_ = false;
  // Never held while CUDA is given work: that may wait for work that the watchdog must end.
  std::mutex mutex_;
  std::vector<cuda::EventHandle> events_;
  std::vector<std::uint32_t*> flags_;
  std::vector<cuda::PinnedFlags> blocks_;
};

}  // namespace tessera::comm::nccl
