#pragma once

#include <cstdint>
#include <functional>

namespace tessera {

class StreamState;
class EventState;

/// A mark in a stream that other streams can wait for. A handle: trivially copyable, not owning;
/// the OwnedEvent that it came from must outlive its use. A default-constructed one stands for
/// nothing, and using it throws ContractError.
class Event {
 public:
  Event() = default;
  explicit Event(EventState* state) noexcept : state_{state} {}

  /// Blocks the calling thread until the work that the event stands for *now* has finished. It
  /// returns at once if the event was never recorded, and throws the stream's error if that work,
  /// or work before it, has failed. Any thread may call it, while no other records the event.
  void wait() const;
  /// Seconds from the moment when `earlier` was reached to the moment when this event was, on the
  /// device's own clock: when the streams came there, not when the host recorded the events.
  /// ContractError unless both come from make_timed_event of one device, have been recorded, and
  /// have been waited for. Always 0 on the meta device.
  [[nodiscard]] double seconds_since(Event earlier) const;

  /// The backend's object behind the handle, for the library itself; null if there is none.
  [[nodiscard]] EventState* state() const noexcept { return state_; }
  /// Whether the handle stands for an event.
  [[nodiscard]] explicit operator bool() const noexcept { return state_ != nullptr; }

 private:
  EventState* state_ = nullptr;
};

/// An in-order queue of work on a device. A handle: trivially copyable, not owning; the
/// OwnedStream that it came from must outlive its use. A default-constructed one stands for
/// nothing, and using it throws ContractError.
///
/// Time:    `record` and `wait_for` enqueue; `wait` blocks the calling thread. A stream of kind
///          *caller* (the compute stream of a CPU rank) has no thread of its own: what is
///          enqueued runs before the call returns, and `wait_for` blocks until the event is
///          reached.
/// Errors:  work that throws ends its stream: later work on it is skipped, and the error is thrown
///          by `wait` and `rethrow`. A stream that waits for an event recorded after that work ends
///          with the same error; events recorded before it pass. A stream of kind *caller* throws
///          the error at once, and again for everything that is enqueued later.
/// Threads: one thread at a time may enqueue.
class Stream {
 public:
  Stream() = default;
  explicit Stream(StreamState* state) noexcept : state_{state} {}

  /// Makes `event` stand for all work enqueued so far. Recording it again moves the mark.
  void record(Event event) const;
  /// Makes work enqueued after this call start only when the work that `event` stands for *now*
  /// has finished. An event that was never recorded holds nothing up.
  void wait_for(Event event) const;
  /// Blocks until all enqueued work has finished; throws the stream's error if it has one.
  void wait() const;
  /// Throws the stream's error if it has one; does not block.
  void rethrow() const;

  /// Enqueues `work`, which runs on some thread of the host when the stream comes to it. It must
  /// neither throw nor enqueue. For instruments: on CUDA it holds the stream up for some
  /// microseconds. The meta device drops it.
  void call(std::function<void()> work) const;

  /// Calls `told` with the moment when the stream comes to this point, in nanoseconds on the clock
  /// of trace::now_ns. On a CPU the call is made at that moment. On CUDA the moment is taken from
  /// the device's own clock, and `told` is called later, by a thread that enqueues here or waits,
  /// in the order of the tell_time calls; none is left uncalled after `wait` or the stream's end.
  /// `told` must neither throw nor enqueue. It is not called on the meta device, nor for a graph
  /// that was not launched. Unlike `call` this does not hold the stream up.
  void tell_time(std::function<void(std::int64_t)> told) const;

  /// The cudaStream_t of a CUDA stream; null for any other stream, and for a stream of host work.
  [[nodiscard]] void* native() const noexcept;
  /// The backend's object behind the handle, for the library itself; null if there is none.
  [[nodiscard]] StreamState* state() const noexcept { return state_; }
  /// Whether the handle stands for a stream.
  [[nodiscard]] explicit operator bool() const noexcept { return state_ != nullptr; }

 private:
  StreamState* state_ = nullptr;
};

}  // namespace tessera
