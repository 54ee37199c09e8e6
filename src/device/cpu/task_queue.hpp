#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "device/cpu/host_task.hpp"

namespace tessera::device {

/// First in, first out, in a ring that only grows: it allocates nothing once it has reached its
/// largest size.
class TaskQueue {
 public:
  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
  [[nodiscard]] std::size_t capacity() const noexcept { return ring_.size(); }

  /// Unchanged if memory for growing is refused.
  void push(HostTask task) {
    if (size_ == ring_.size()) { grow(); }
    ring_[(first_ + size_) % ring_.size()] = std::move(task);
    ++size_;
  }

  /// The queue must not be empty.
  [[nodiscard]] HostTask pop() noexcept {
    HostTask task = std::move(ring_[first_]);
    first_ = (first_ + 1) % ring_.size();
    --size_;
    return task;
  }

 private:
  void grow() {
    std::vector<HostTask> larger(std::max<std::size_t>(16, 2 * ring_.size()));
    for (std::size_t i = 0; i < size_; ++i) {
      larger[i] = std::move(ring_[(first_ + i) % ring_.size()]);
    }
    ring_ = std::move(larger);
    first_ = 0;
  }

  std::vector<HostTask> ring_;
  std::size_t first_ = 0;
  std::size_t size_ = 0;
};

}  // namespace tessera::device
