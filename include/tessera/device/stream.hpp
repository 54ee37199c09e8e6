#pragma once

#include <cstdint>
#include <functional>

namespace tessera {

class StreamState;
class EventState;

/// A mark in a stream that other streams can wait for. A handle: trivially copyable, not owning;
/// the OwnedEvent it came from outlives its use.
class Event {
 public:
  Event() = default;
  explicit Event(EventState* state) noexcept : state_{state} {}

  /// Blocks the calling thread until what the event stands for *now* has finished, at once if it
  /// was never recorded; throws the stream's error if that work, or some before it, has failed.
  void wait() const;
  /// Seconds from the moment that `earlier` stands for to this one's, on the device's own clock:
  /// when its stream came there, not when the host recorded it. Both are of one device's
  /// make_timed_event, have been recorded, and have been waited for: ContractError if not.
  [[nodiscard]] double seconds_since(Event earlier) const;

  [[nodiscard]] EventState* state() const noexcept { return state_; }
  [[nodiscard]] explicit operator bool() const noexcept { return state_ != nullptr; }

 private:
  EventState* state_ = nullptr;
};

/// An in-order queue of work on a device. A handle: trivially copyable, not owning.
///
/// Time:    `record` and `wait_for` enqueue; `wait` blocks the calling thread. A stream of kind
///          *caller* (the compute stream of a CPU rank) has no thread of its own: what is
///          enqueued runs before the call returns, and `wait_for` blocks until the event is there.
/// Errors:  work that throws ends its stream: later work on it is skipped, and the error is thrown
///          by `wait` and `rethrow`. A stream that waits for an event recorded after that work ends
///          with the same error; events recorded before it pass. A stream of kind *caller* throws
///          the error that ends it at once, and again for whatever is enqueued later.
/// Threads: one thread at a time enqueues.
class Stream {
 public:
  Stream() = default;
  explicit Stream(StreamState* state) noexcept : state_{state} {}

  /// The event now stands for all work enqueued so far. Recording again moves the mark.
  void record(Event event) const;
  /// Work enqueued after this starts when what the event stands for *now* has finished. An event
  /// never recorded is passed at once.
  void wait_for(Event event) const;
  /// Blocks until all enqueued work has finished; throws the stream's error if it has one.
  void wait() const;
  /// Throws the stream's error if it has one; does not block.
  void rethrow() const;

  /// Enqueues `work`, which runs on some thread of the host when the stream has come there, and
  /// neither throws nor enqueues. For instruments: on CUDA it holds the stream up for some
  /// microseconds.
  void call(std::function<void()> work) const;

  /// Calls `told` with the moment when the stream has come here, in nanoseconds on the clock of
  /// trace::now_ns: on a CPU at that moment, on CUDA by the device's own time and later, on a
  /// thread that enqueues here or waits, in the order of these calls; `wait` and the stream's end
  /// leave none out. `told` neither throws nor enqueues. Nothing is told of a graph that was not
  /// launched. Unlike `call` it does not hold the stream up.
  void tell_time(std::function<void(std::int64_t)> told) const;

  /// cudaStream_t on a CUDA device, null on a CPU and of a stream of host work.
  [[nodiscard]] void* native() const noexcept;
  [[nodiscard]] StreamState* state() const noexcept { return state_; }
  [[nodiscard]] explicit operator bool() const noexcept { return state_ != nullptr; }

 private:
  StreamState* state_ = nullptr;
};

}  // namespace tessera
