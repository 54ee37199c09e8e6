#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>

namespace emulated_cuda {

/// One piece of a stream's work.
struct Task {
  /// Whose memory the work may touch: its device's and that of the peers it was given, every
  /// device's (copies), or none (functions of the host).
  enum class Access : std::uint8_t { device_and_peers, all, none };

  const char* name = "";  ///< a literal
  int device = 0;
  Access access = Access::device_and_peers;
  std::function<void()> work;
  const void* kernel = nullptr;
};

/// On the calling thread, after a delay that is drawn from `draw` where delays are asked for.
void run_task(const Task& task, std::uint64_t draw);

/// `device` may now touch the memory of `peer`. False if it might already.
bool enable_peer(int device, int peer);

/// Something that is reached once.
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
