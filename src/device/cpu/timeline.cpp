#include "device/cpu/timeline.hpp"

#include <algorithm>
#include <utility>

namespace tessera::device {

void Timeline::reach_next(std::exception_ptr error) noexcept {
  const std::lock_guard lock{mutex_};
  if (reached_ == kNever) { return; }
  ++reached_;
  if (error && failed_ == kNever) {
    failed_ = reached_;
    error_ = std::move(error);
  }
  if (listener_) { listener_->reached(reached_); }
  // Threads are woken only for tickets that one waits for; those that want a later one register
  // again.
  if (reached_ >= wanted_) {
    wanted_ = kNever;
    reached_changed_.notify_all();
  }
}

void Timeline::end(std::exception_ptr error) noexcept {
  const std::lock_guard lock{mutex_};
  if (reached_ == kNever) { return; }
  if (failed_ == kNever) {
    failed_ = reached_ + 1;
    error_ = std::move(error);
  }
  reached_ = wanted_ = kNever;
  reached_changed_.notify_all();
}

void Timeline::tell(std::shared_ptr<TimelineListener> listener) {
  const std::lock_guard lock{mutex_};
  listener_ = std::move(listener);
}

void Timeline::wait(std::uint64_t ticket) {
  std::unique_lock lock{mutex_};
  while (reached_ < ticket) {
    wanted_ = std::min(wanted_, ticket);
    reached_changed_.wait(lock);
  }
  if (failed_ <= ticket) { std::rethrow_exception(error_); }
}

bool Timeline::passed(std::uint64_t ticket) const {
  const std::lock_guard lock{mutex_};
  return reached_ >= ticket && failed_ > ticket;
}

void Timeline::rethrow() const {
  const std::lock_guard lock{mutex_};
  if (error_) { std::rethrow_exception(error_); }
}

void Timeline::rethrow(std::uint64_t ticket) const {
  const std::lock_guard lock{mutex_};
  if (failed_ <= ticket) { std::rethrow_exception(error_); }
}

}  // namespace tessera::device
