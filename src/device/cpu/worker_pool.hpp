#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string_view>
#include <thread>
#include <vector>

namespace tessera {

/// Items [first, last) of a parallel loop, and which of the pool's threads has them: below
/// `threads()`, below the number of chunks, and different for chunks that run at the same time.
struct Chunk {
  std::int64_t first;
  std::int64_t last;
  int worker;

  [[nodiscard]] std::int64_t size() const noexcept { return last - first; }
};

/// Threads that help the calling thread through one loop at a time.
///
/// Time:    `for_chunks` returns when every chunk is done. A helper that wakes too late is not
///          waited for: the others have taken its chunks.
/// Memory:  nothing is allocated after the start.
/// Threads: a loop that finds the pool taken, by another thread or by the loop it is part of, runs
///          on its own thread alone.
class WorkerPool {
 public:
  using Body = void (*)(void* context, const Chunk& chunk);

  /// `threads` counts the caller: one fewer are started. `name` is what debuggers show.
  /// DeviceError if the system has no thread left.
  WorkerPool(int threads, std::string_view name);
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  [[nodiscard]] int threads() const noexcept { return static_cast<int>(helpers_.size()) + 1; }
  /// For pinning.
  [[nodiscard]] std::vector<std::thread>& helpers() noexcept { return helpers_; }

  /// Calls `body(context, chunk)` for chunks that together are [0, items). They begin at multiples
  /// of `grain` and are as many as balance the load; worker 0 is the caller.
  /// Errors: what a chunk throws is thrown here, the first chunk's of several; chunks that have not
  ///         begun by then are left out.
  void for_chunks(std::int64_t items, std::int64_t grain, Body body, void* context);

 private:
  class Loop;
  void open(Loop& loop, std::int64_t helpers);
  void close() noexcept;
  [[nodiscard]] Loop* join(std::uint64_t& seen, int& worker);
  void leave() noexcept;
  void work() noexcept;
  void stop() noexcept;

  std::atomic<bool> taken_ = false;
  std::atomic<std::uint64_t> opened_ = 0;  // loops so far
  std::atomic<int> active_ = 0;            // helpers inside the loop
  std::mutex mutex_;                       // guards what follows, and writes of the two above
  std::condition_variable loop_opened_;
  std::condition_variable helpers_left_;
  Loop* loop_ = nullptr;
  std::int64_t wanted_ = 0;  // helpers that the open loop has work for
  int joined_ = 0;
  bool closing_ = false;
  std::vector<std::thread> helpers_;
};

}  // namespace tessera
