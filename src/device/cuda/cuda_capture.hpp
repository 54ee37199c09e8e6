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

/// What becomes of a graph. One that is dropped is never launched.
enum class GraphFate : std::uint8_t { captured, launched, dropped };

/// What the streams of a device know of the graphs that are captured on them.
///
/// An event that is recorded while a graph is captured stands for a point within that graph, of
/// which CUDA knows nothing outside of it. Who waits for it later waits for the graph's end. An
/// event that was recorded before is not waited for within a graph: the graph starts after all that
/// its streams had been given. Graphs of one device are captured one after another, and run in that
/// order: who waits for an event of a graph whose end is no longer known waits for a later graph's.
class CaptureState {
 public:
  /// Of device `ordinal`.
  explicit CaptureState(int ordinal);

  [[nodiscard]] int ordinal() const noexcept { return ordinal_; }

  /// Of the graph under way; 0 if there is none.
  [[nodiscard]] std::uint64_t current() const noexcept { return current_; }
  /// Of the graph that is or was captured last, also once another is; null before the first.
  [[nodiscard]] std::shared_ptr<const std::atomic<GraphFate>> fate() const noexcept {
    return fate_;
  }
  /// Reached when `graph` has finished; of one that was launched long ago, when a later one has.
  /// Null if neither it nor a later one was ever launched. Threads: any.
  [[nodiscard]] cudaEvent_t end_of(std::uint64_t graph) const noexcept;
  /// `stream` takes part in the graph under way from here on, if there is one and it does not yet.
  void join(CudaStream& stream);
  /// `call` belongs to the graph under way: its launch makes it, and destroys it; without a launch
  /// it is destroyed unmade.
  void keep(std::unique_ptr<std::function<void()>> call) { calls_.push_back(std::move(call)); }
  /// The same of a time that is wanted of `stream`.
  void keep(CudaStream& stream, TimeMark mark) { marks_.push_back({&stream, std::move(mark)}); }
  /// The device's graphs let go of what they hold, which libraries wait for as they end, and no
  /// more are launched: that throws `error`. What is under way is not waited for. Any thread.
  void end_graphs(const std::exception_ptr& error) noexcept;

 private:
  friend class CudaGraph;
  /// Of the graphs launched last.
  struct End {
    std::uint64_t graph = 0;
    EventHandle event = make_event_handle();
  };

  /// The graph under way has been launched on `origin`.
  void note_end(cudaStream_t origin);
  /// Of the graph launched last; null if there was none.
  [[nodiscard]] cudaEvent_t last_end() const noexcept { return end_of(launched_); }

  int ordinal_;
  std::uint64_t number_ = 0;
  std::uint64_t launched_ = 0;              // the number of the graph launched last
  std::atomic<std::uint64_t> current_ = 0;  // looked at by threads that wait for an event from here
  std::shared_ptr<std::atomic<GraphFate>> fate_;
  EventHandle begin_;
  EventHandle joined_end_;    // of a stream that takes part
  mutable std::mutex mutex_;  // of ends_
  std::array<End, 4> ends_;
  std::vector<CudaStream*> joined_;
  std::vector<std::unique_ptr<std::function<void()>>> calls_;
  std::vector<std::pair<CudaStream*, TimeMark>> marks_;
  std::mutex graphs_mutex_;  // of these, and of what they hold
  std::vector<CudaGraph*> graphs_;
  std::exception_ptr ended_;
};

/// One graph, captured anew at every run: with whatever addresses and numbers the work has now.
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

/// Whether a graph is captured on `device`, a CUDA device.
[[nodiscard]] bool is_capturing(const Device& device);

}  // namespace tessera::cuda
