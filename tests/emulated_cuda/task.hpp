#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>

namespace emulated_cuda {

/// One task of a stream.
struct Task {
  /// Device memory that the task may touch: its device's and that of enabled peers, all devices'
  /// (copies), or none (host functions).
  enum class Access : std::uint8_t { device_and_peers, all, none };

  const char* name = "";  ///< a literal
  int device = 0;
  Access access = Access::device_and_peers;
  std::function<void()> work;
  const void* kernel = nullptr;
};

/// Runs `task` on the calling thread, after a delay drawn from `draw` if delays are enabled.
void run_task(const Task& task, std::uint64_t draw);

/// Lets `device` touch the memory of `peer`. False if it already may.
bool enable_peer(int device, int peer);

/// A point that is reached once.
class Mark {
 public:
  void reach();
  void wait();
  [[nodiscard]] bool reached();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool reached_ = false;
};

}  // namespace emulated_cuda
