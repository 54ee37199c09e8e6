#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>

#include "device/cpu/timeline.hpp"
#include "device/stream_state.hpp"
#include "tessera/base/error.hpp"

namespace tessera::device {

/// Holds a mark. Threads: any; the lock also makes work that a caller stream did before recording
/// visible to the waiting thread.
class CpuEvent final : public EventState {
 public:
  enum class Kind : std::uint8_t { plain, timed };
  explicit CpuEvent(Kind kind)
      : reached_ns_{kind == Kind::timed ? std::make_shared<std::int64_t>(0) : nullptr} {}

  void set(Mark mark) {
    const std::lock_guard lock{mutex_};
    mark_ = std::move(mark);
  }
  [[nodiscard]] Mark mark() const {
    const std::lock_guard lock{mutex_};
    return mark_;
  }
  /// Where the stream writes the time, just before the mark; null for a plain event.
  [[nodiscard]] const std::shared_ptr<std::int64_t>& reached_ns() const noexcept {
    return reached_ns_;
  }
  void wait() override {
    const Mark now = mark();
    if (now.timeline != nullptr) { now.timeline->wait(now.ticket); }
  }
  [[nodiscard]] double seconds_since(const EventState& earlier) const override {
    const auto* const from = dynamic_cast<const CpuEvent*>(&earlier);
    expects(from != nullptr, "seconds_since needs events of one device");
    return static_cast<double>(time() - from->time()) * 1e-9;
  }

 private:
  [[nodiscard]] std::int64_t time() const {
    expects(reached_ns_ != nullptr, "seconds_since needs events of make_timed_event");
    const Mark now = mark();
    expects(now.timeline != nullptr && now.timeline->passed(now.ticket),
            "seconds_since needs events that were recorded and waited for");
    return *reached_ns_;
  }

  std::shared_ptr<std::int64_t> reached_ns_;
  mutable std::mutex mutex_;
  Mark mark_;
};

}  // namespace tessera::device
