#include "emulated_cuda/task.hpp"

#include <array>
#include <atomic>
#include <chrono>
#include <thread>

#include "emulated_cuda/access.hpp"
#include "emulated_cuda/misuse.hpp"
#include "emulated_cuda/settings.hpp"

namespace emulated_cuda {
namespace {

std::array<std::atomic<std::uint32_t>, kMostDevices> peers{};

std::uint32_t mask_of(const Task& task) {
  switch (task.access) {
    case Task::Access::all:
      return ScopedAccess::kAll;
    case Task::Access::none:
      return ScopedAccess::kNone;
    case Task::Access::device_and_peers:
      break;
  }
  return 1U << static_cast<unsigned>(task.device) | peers[static_cast<std::size_t>(task.device)];
}

}  // namespace

void run_task(const Task& task, std::uint64_t draw) {
  if (const int most = settings().most_delay_us; most > 0) {
    const std::uint64_t delay = drawn(draw, 1) % (static_cast<std::uint64_t>(most) + 1);
    std::this_thread::sleep_for(std::chrono::microseconds{delay});
  }
  const Doing doing{task.name, task.kernel};
  const ScopedAccess access{mask_of(task)};
  task.work();
}

bool enable_peer(int device, int peer) {
  const std::uint32_t bit = 1U << static_cast<unsigned>(peer);
  return (peers[static_cast<std::size_t>(device)].fetch_or(bit) & bit) == 0;
}

void Mark::reach() {
  {
    const std::scoped_lock lock{mutex_};
    reached_ = true;
  }
  changed_.notify_all();
}

void Mark::wait() {
  std::unique_lock lock{mutex_};
  changed_.wait(lock, [&] { return reached_; });
}

bool Mark::reached() {
  const std::scoped_lock lock{mutex_};
  return reached_;
}

}  // namespace emulated_cuda
