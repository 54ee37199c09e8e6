#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "device/cuda/cuda_handle.hpp"
#include "device/cuda/cuda_times.hpp"
#include "tessera/device/device.hpp"

namespace tessera::cuda {

class CudaGraph;
class CudaStream;

/// The state of a graph. A dropped graph is never launched.
enum class GraphFate : std::uint8_t { captured, launched, dropped };

/// What the streams of a device know of the graphs captured on them.
///
/// An event recorded during a capture stands for a point within that graph, which CUDA does not
/// know outside of it. A later wait for the event waits for the graph's end. Within a graph, an
/// event that was recorded earlier is not waited for: the graph starts after all earlier work of
/// its streams. Graphs of one device are captured one after another, and run in that order: a wait
/// for an event of a graph whose end is no longer known waits for a later graph's.
class CaptureState {
 public:
  /// For device `ordinal`.
  explicit CaptureState(int ordinal);

  [[nodiscard]] int ordinal() const noexcept { return ordinal_; }

  /// The graph being captured; 0 if there is none.
  [[nodiscard]] std::uint64_t current() const noexcept { return current_; }
  /// The fate of the latest graph to be captured, also once a later one is begun; null before the
  /// first.
  [[nodiscard]] std::shared_ptr<const std::atomic<GraphFate>> fate() const noexcept {
    return fate_;
  }
  /// Reached when `graph` has finished; for a graph launched long ago, when a later one has. Null
  /// if neither it nor a later one was ever launched. Threads: any.
  [[nodiscard]] cudaEvent_t end_of(std::uint64_t graph) const noexcept;
  /// Makes `stream` part of the graph being captured, if there is one and it is not yet part of it.
  void join(CudaStream& stream);
  /// `call` belongs to the graph being captured: its launch makes the call, and destroys it;
  /// without a launch it is destroyed without being made.
  void keep(std::unique_ptr<std::function<void()>> call) { calls_.push_back(std::move(call)); }
  /// The same for a time requested on `stream`.
  void keep(CudaStream& stream, TimeMark mark) { marks_.push_back({&stream, std::move(mark)}); }
  /// Makes the device's graphs release what they hold, which libraries wait for as they end, and
  /// launches no more: that throws `error`. Work in flight is not waited for. Any thread.
  void end_graphs(const std::exception_ptr& error) noexcept;

 private:
  friend class CudaGraph;
  /// The end of one of the latest graphs.
  struct End {
    std::uint64_t graph = 0;
    EventHandle event = make_event_handle();
  };

  /// The captured graph was launched on `origin`.
  void note_end(cudaStream_t origin);
  /// The end of the latest launched graph; null if there was none.
  [[nodiscard]] cudaEvent_t last_end() const noexcept { return end_of(launched_); }

  int ordinal_;
  std::uint64_t number_ = 0;
  std::uint64_t launched_ = 0;              // the number of the latest launched graph
  std::atomic<std::uint64_t> current_ = 0;  // read by threads that wait for an event of this device
  std::shared_ptr<std::atomic<GraphFate>> fate_;
  EventHandle begin_;
  EventHandle joined_end_;    // end of a stream that takes part
  mutable std::mutex mutex_;  // guards ends_
  std::array<End, 4> ends_;
  std::vector<CudaStream*> joined_;
  std::vector<std::unique_ptr<std::function<void()>>> calls_;
  std::vector<std::pair<CudaStream*, TimeMark>> marks_;
  std::mutex graphs_mutex_;  // guards these, and what they hold
  std::vector<CudaGraph*> graphs_;
  std::exception_ptr ended_;
};

/// One graph, captured anew at every run, with the current addresses and numbers of the work.
class CudaGraph final : public WorkGraph {
 public:
  explicit CudaGraph(CaptureState& state);
  ~CudaGraph() override;
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;
  void run(Stream origin, const std::vector<Stream>& others,
           const std::function<void()>& enqueue) override;

 private:
  [[nodiscard]] GraphHandle capture(CudaStream& origin, const std::function<void()>& enqueue);
  void end_capture(CudaStream& origin, GraphHandle* graph);
  void update(const GraphHandle& graph);
  void launch(CudaStream& origin, const std::function<void()>& enqueue);

  friend class CaptureState;
  CaptureState& state_;
  GraphExecHandle exec_;  // guarded by the state's graphs_mutex_
};

/// Whether a graph is being captured on `device`, a CUDA device.
[[nodiscard]] bool is_capturing(const Device& device);

}  // namespace tessera::cuda
