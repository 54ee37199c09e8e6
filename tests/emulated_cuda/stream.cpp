#include "emulated_cuda/stream.hpp"

#include <set>
#include <utility>

#include "emulated_cuda/fault_handler.hpp"
#include "emulated_cuda/settings.hpp"

namespace emulated_cuda {
namespace {

std::atomic<std::uint64_t> streams_made = 0;

/// Never destroyed: streams may still exist when the process ends.
struct Handles {
  std::mutex mutex;
  std::set<const void*> all;
  std::set<CUstream_st*> streams;
};

Handles& handles() {
  static auto* const handles = new Handles;
  return *handles;
}

}  // namespace

std::mutex& capture_mutex() {
  static auto* const mutex = new std::mutex;
  return *mutex;
}

bool is_stream(cudaStream_t stream) {
  const std::scoped_lock lock{handles().mutex};
  return handles().streams.contains(stream);
}

bool is_handle(const void* handle) {
  const std::scoped_lock lock{handles().mutex};
  return handles().all.contains(handle);
}

void add_handle(const void* handle) {
  const std::scoped_lock lock{handles().mutex};
  handles().all.insert(handle);
}

bool remove_handle(const void* handle) {
  const std::scoped_lock lock{handles().mutex};
  return handles().all.erase(handle) > 0;
}

void wait_for_device(int device) {
  std::vector<std::shared_ptr<Mark>> marks;
  {
    // The lock is not held during the wait: the awaited work may need work of other threads.
    const std::scoped_lock lock{handles().mutex};
    for (CUstream_st* const stream : handles().streams) {
      if (stream->device() != device) { continue; }
      marks.push_back(std::make_shared<Mark>());
      Task reach;
      reach.name = "the end of a device's work";
      reach.work = [mark = marks.back()] { mark->reach(); };
      stream->push(std::move(reach));
    }
  }
  for (const auto& mark : marks) { mark->wait(); }
}

void add_node(CUstream_st& stream, Graph::Node node) {
  Graph& graph = stream.capture->graph;
  node.lane = stream.lane;
  stream.last_node = graph.nodes.size();
  graph.nodes.push_back(std::move(node));
}

void invalidate(CUstream_st& stream) {
  if (stream.capture) { stream.capture->invalid = true; }
}

cudaError_t enqueue(cudaStream_t stream, Task task, Graph::Kind kind, int detail) {
  if (!is_stream(stream)) { return cudaErrorInvalidResourceHandle; }
  stream->wait_for_room();
  const std::scoped_lock lock{capture_mutex()};
  if (!stream->capture) {
    stream->push(std::move(task));
    return cudaSuccess;
  }
  if (stream->capture->invalid) { return cudaErrorStreamCaptureInvalidated; }
  Graph::Node node;
  node.kind = kind;
  node.detail = detail;
  node.after = {stream->last_node};
  node.task = std::move(task);
  add_node(*stream, std::move(node));
  return cudaSuccess;
}

}  // namespace emulated_cuda

using namespace emulated_cuda;

CUstream_st::CUstream_st(int device)
    : device_{device}, number_{++streams_made}, thread_{[this] { run(); }} {
  const std::scoped_lock lock{handles().mutex};
  handles().streams.insert(this);
}

CUstream_st::~CUstream_st() {
  {
    const std::scoped_lock lock{handles().mutex};
    handles().streams.erase(this);
  }
  {
    const std::scoped_lock lock{mutex_};
    ends_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

std::uint64_t CUstream_st::draw() {
  return drawn(number_, ++draws_);
}

void CUstream_st::push(Task task) {
  {
    const std::scoped_lock lock{mutex_};
    tasks_.push_back(std::move(task));
  }
  changed_.notify_all();
}

void CUstream_st::wait() {
  std::unique_lock lock{mutex_};
  changed_.wait(lock, [&] { return tasks_.empty(); });
}

void CUstream_st::wait_for_room() {
  const auto most = static_cast<std::size_t>(settings().queue);
  if (most == 0) { return; }
  std::unique_lock lock{mutex_};
  changed_.wait(lock, [&] { return tasks_.size() < most; });
}

bool CUstream_st::idle() {
  const std::scoped_lock lock{mutex_};
  return tasks_.empty();
}

void CUstream_st::run() {
  use_signal_stack();
  std::unique_lock lock{mutex_};
  for (;;) {
    changed_.wait(lock, [&] { return ends_ || !tasks_.empty(); });
    if (tasks_.empty()) { return; }
    {
      const Task task = std::move(tasks_.front());
      lock.unlock();
      run_task(task, draw());
    }
    lock.lock();
    tasks_.pop_front();
    if (tasks_.empty() || settings().queue > 0) { changed_.notify_all(); }
  }
}
