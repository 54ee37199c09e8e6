#pragma once

#include <mutex>
#include <utility>

#include "device/cpu/timeline.hpp"
#include "device/stream_state.hpp"

namespace tessera {

/// Holds a mark. Threads: any; the lock also makes what a caller stream did before it recorded
/// visible to the thread that then waits.
class CpuEvent final : public EventState {
 public:
  void set(Mark mark) {
    const std::lock_guard lock{mutex_};
    mark_ = std::move(mark);
  }
  [[nodiscard]] Mark mark() const {
    const std::lock_guard lock{mutex_};
    return mark_;
  }
  void wait() override {
    const Mark now = mark();
    if (now.timeline != nullptr) { now.timeline->wait(now.ticket); }
  }

 private:
  mutable std::mutex mutex_;
  Mark mark_;
};

}  // namespace tessera
