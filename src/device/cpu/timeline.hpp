#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <limits>
#include <memory>
#include <mutex>

namespace tessera::device {

/// Follows a stream's progress, including skipped tasks.
class TimelineListener {
 public:
  virtual ~TimelineListener() = default;
  TimelineListener(const TimelineListener&) = delete;
  TimelineListener& operator=(const TimelineListener&) = delete;
  /// Called for each ticket in order, from the first on, with the timeline's lock held.
  virtual void reached(std::uint64_t ticket) noexcept = 0;

 protected:
  TimelineListener() = default;
};

/// The progress of a stream. Tasks of a stream are numbered from 1 (tickets); the stream reaches
/// them in order. Shared by the stream and the events recorded on it, which may outlive it.
///
/// Errors:  the first failing task leaves its error here; it applies to that ticket and all later
///          ones, never to earlier ones, so that seeing it does not depend on timing.
/// Threads: any.
class Timeline {
 public:
  /// The next ticket is done. `error` is null unless its task threw.
  void reach_next(std::exception_ptr error) noexcept;
  /// Tickets not yet reached never will be: a thread that waits for one gets `error`. Later calls
  /// have no effect.
  void end(std::exception_ptr error) noexcept;
  /// Call it before the first ticket.
  void tell(std::shared_ptr<TimelineListener> listener);

  /// Blocks until `ticket` is reached; throws the error if it or an earlier one failed.
  void wait(std::uint64_t ticket);
  /// Whether `wait(ticket)` would return at once.
  [[nodiscard]] bool passed(std::uint64_t ticket) const;
  /// Throws the error, if there is one yet.
  void rethrow() const;
  /// Throws the error that `wait(ticket)` will throw, if it is already known.
  void rethrow(std::uint64_t ticket) const;

 private:
  static constexpr std::uint64_t kNever = std::numeric_limits<std::uint64_t>::max();

  mutable std::mutex mutex_;
  std::condition_variable reached_changed_;
  std::uint64_t reached_ = 0;      // kNever once ended
  std::uint64_t wanted_ = kNever;  // the first ticket that a thread blocks for
  std::uint64_t failed_ = kNever;  // the first ticket that failed
  std::exception_ptr error_;
  std::shared_ptr<TimelineListener> listener_;
};

/// A point on a timeline, to which an event refers. Without a timeline: never recorded.
struct Mark {
  std::shared_ptr<Timeline> timeline;
  std::uint64_t ticket = 0;
};

}  // namespace tessera::device
