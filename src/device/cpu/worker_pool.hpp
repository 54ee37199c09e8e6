#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string_view>
#include <thread>
#include <vector>

namespace tessera::device {

/// Items [first, last) of a parallel loop, and the thread of the pool that has them: below
/// `threads()`, below the number of chunks, and different for chunks that run at the same time.
struct Chunk {
  std::int64_t first;
  std::int64_t last;
  int worker;

  [[nodiscard]] std::int64_t size() const noexcept { return last - first; }
};

/// Threads that help the calling thread through one loop at a time.
///
/// Time:    `for_chunks` returns when every chunk is done. It does not wait for a helper that wakes
///          too late: the others have taken its chunks.
/// Memory:  nothing is allocated after the start.
/// Threads: a loop that finds the pool in use, by another thread or by an enclosing loop, runs only
///          on its own thread.
class WorkerPool {
 public:
  using Body = void (*)(void* context, const Chunk& chunk);

  /// `threads` includes the caller: one fewer are started. `name` is shown by debuggers. Throws
  /// DeviceError if the system has no thread left.
  WorkerPool(int threads, std::string_view name);
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  [[nodiscard]] int threads() const noexcept { return static_cast<int>(helpers_.size()) + 1; }
  /// For pinning.
  [[nodiscard]] std::vector<std::thread>& helpers() noexcept { return helpers_; }

  /// Calls `body(context, chunk)` for chunks that together are [0, items). They begin at multiples
  /// of `grain`, and their number balances the load; worker 0 is the caller. Errors: an exception
  /// of a chunk is thrown here, that of the first chunk if several throw; chunks that have not
  /// begun by then are left out.
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
  std::mutex mutex_;  // guards the following members, and writes of the two above
  std::condition_variable loop_opened_;
  std::condition_variable helpers_left_;
  Loop* loop_ = nullptr;
  std::int64_t wanted_ = 0;  // helpers that the open loop has work for
  int joined_ = 0;
  bool closing_ = false;
  std::vector<std::thread> helpers_;
};

}  // namespace tessera::device
