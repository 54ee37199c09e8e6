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

namespace tessera::nccl {

/// A place in a stream: an event; or, as nobody can ask for a moment within a graph, a flag that
/// the graph raises there.
struct StreamMark {
  cuda::EventHandle event = {};
  std::uint32_t* flag = nullptr;
  std::shared_ptr<const std::atomic<cuda::GraphFate>> graph = nullptr;  // that the flag is part of

  /// Whether it is part of a graph that has not been launched yet.
  [[nodiscard]] bool is_captured() const noexcept {
    return graph != nullptr && *graph == cuda::GraphFate::captured;
  }
};

/// Marks of a rank's batches, whose events and flags are used again.
///
/// Memory:  so many flags as marks of graphs are there at a time.
/// Threads: any.
class StreamMarks {
 public:
  /// Where `stream` is now.
  [[nodiscard]] StreamMark set(cuda::CudaStream& stream);
  /// Whether the stream has come there; or never will, as the graph was dropped.
  [[nodiscard]] static bool is_reached(const StreamMark& mark);
  /// Nobody asks for `mark` any more, which has been reached.
  void take_back(StreamMark mark);
  /// Whether some have been part of a graph.
  [[nodiscard]] bool were_captured() const noexcept { return were_captured_; }

 private:
  [[nodiscard]] cuda::EventHandle take_event();
  [[nodiscard]] std::uint32_t* take_flag();

  std::atomic<bool> were_captured_ = false;
  // Never held where CUDA is given work: that may wait for what the watchdog is to end.
  std::mutex mutex_;
  std::vector<cuda::EventHandle> events_;
  std::vector<std::uint32_t*> flags_;
  std::vector<cuda::PinnedFlags> blocks_;
};

}  // namespace tessera::nccl
