#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "device/cuda/cuda_handle.hpp"
#include "tessera/device/device.hpp"

namespace tessera::cuda {

class CudaStream;

/// What the streams of a device know of the graphs that are captured on them.
///
/// An event that is recorded while a graph is captured stands for a point within that graph, of
/// which CUDA knows nothing outside of it. Who waits for it later waits for the graph's end. An
/// event that was recorded before is not waited for within a graph: the graph starts after all that
/// its streams had been given. Graphs of one device are captured and launched one after another.
class CaptureState {
 public:
  CaptureState();

  /// Of the graph under way; 0 if there is none.
  [[nodiscard]] std::uint64_t current() const noexcept { return current_; }
  /// Reached when the last graph launched has finished.
  [[nodiscard]] cudaEvent_t graph_end() const noexcept { return end_.get(); }
  /// `stream` takes part in the graph under way from here on, if there is one and it does not yet.
  void join(CudaStream& stream);
  /// `call` belongs to the graph under way: its launch makes it, and destroys it; without a launch
  /// it is destroyed unmade.
  void keep(std::unique_ptr<std::function<void()>> call) { calls_.push_back(std::move(call)); }

 private:
  friend class CudaGraph;
  std::uint64_t number_ = 0;
  std::atomic<std::uint64_t> current_ = 0;  // looked at by threads that wait for an event from here
  EventHandle begin_;
  EventHandle joined_end_;  // of a stream that takes part
  EventHandle end_;
  std::vector<CudaStream*> joined_;
  std::vector<std::unique_ptr<std::function<void()>>> calls_;
};

/// One graph, captured anew at every run: with whatever addresses and numbers the work has now.
class CudaGraph final : public WorkGraph {
 public:
  explicit CudaGraph(CaptureState& state) : state_{state} {}
  void run(Stream origin, const std::vector<Stream>& others,
           const std::function<void()>& enqueue) override;

 private:
  [[nodiscard]] GraphHandle capture(CudaStream& origin, const std::function<void()>& enqueue);
  void end_capture(CudaStream& origin, GraphHandle* graph);
  void update(const GraphHandle& graph);
  void launch(CudaStream& origin, const std::function<void()>& enqueue);

  CaptureState& state_;
  GraphExecHandle exec_;
};

}  // namespace tessera::cuda
