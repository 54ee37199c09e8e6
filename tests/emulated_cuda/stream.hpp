#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "emulated_cuda/graph.hpp"
#include "emulated_cuda/task.hpp"

namespace emulated_cuda {

/// A graph that is being captured. Guarded by capture_mutex().
struct Capture {
  Graph graph;
  CUstream_st* origin = nullptr;
  std::vector<CUstream_st*> streams;
  bool active = true;
  bool invalid = false;
};

/// A moment of an event: a mark in a stream, or a node of a graph that is captured.
struct Moment {
  Mark mark;
  std::chrono::steady_clock::time_point time;
  std::shared_ptr<Capture> capture;  ///< null: outside captures
  std::size_t node = 0;
};

/// Guards every capture and the streams that take part in it.
[[nodiscard]] std::mutex& capture_mutex();

}  // namespace emulated_cuda

/// A thread that runs tasks in order.
struct CUstream_st {
 public:
  explicit CUstream_st(int device);
  ~CUstream_st();  // finishes its tasks
  CUstream_st(const CUstream_st&) = delete;
  CUstream_st& operator=(const CUstream_st&) = delete;

  void push(emulated_cuda::Task task);
  void wait();
  /// Blocks while the queue holds as many tasks as the emulation allows.
  void wait_for_room();
  [[nodiscard]] bool idle();
  [[nodiscard]] int device() const noexcept { return device_; }
  /// A new number at every call, the source of this stream's random choices.
  [[nodiscard]] std::uint64_t draw();

  // Guarded by capture_mutex().
  std::shared_ptr<emulated_cuda::Capture> capture;
  int lane = 0;
  std::size_t last_node = 0;

 private:
  void run();

  const int device_;
  const std::uint64_t number_;
  std::atomic<std::uint64_t> draws_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<emulated_cuda::Task> tasks_;  // the first one is running
  bool ends_ = false;
  std::thread thread_;
};

struct CUevent_st {
  int device = 0;
  bool timed = false;
  std::shared_ptr<emulated_cuda::Moment> moment;  ///< null: never recorded. Guarded like captures
};

namespace emulated_cuda {

/// Enqueues `task` on the stream, or adds it to the stream's capture.
[[nodiscard]] cudaError_t enqueue(cudaStream_t stream, Task task, Graph::Kind kind, int detail = 0);

/// Adds a node after the stream's last one; the stream is in a capture. Call with capture_mutex()
/// held.
void add_node(CUstream_st& stream, Graph::Node node);

/// Invalidates the capture: it can only end, with an error. Call with capture_mutex() held.
void invalidate(CUstream_st& stream);

/// Registry of live handles: the emulation refuses any other, as CUDA does.
[[nodiscard]] bool is_stream(cudaStream_t stream);
[[nodiscard]] bool is_handle(const void* handle);
void add_handle(const void* handle);
[[nodiscard]] bool remove_handle(const void* handle);

/// Returns when all streams of the device are idle.
void wait_for_device(int device);

}  // namespace emulated_cuda
