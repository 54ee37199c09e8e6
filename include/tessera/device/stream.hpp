#pragma once

#include <cstdint>
#include <functional>

namespace tessera {

namespace device {
class StreamState;
class EventState;
}  // namespace device

/// A mark in a stream that other streams can wait for. It is a handle: trivially copyable, and
/// owned by an OwnedEvent that must outlive its use.
class Event {
 public:
  /// An empty handle; using it throws ContractError.
  Event() = default;
  /// The handle of `state`, for backends.
  explicit Event(device::EventState* state) noexcept : state_{state} {}

  /// Blocks the calling thread until the work before the last recorded mark has finished. Returns
  /// at once if the event was never recorded. Throws the stream's error if that work, or work
  /// before it, has failed. Any thread may call it while no other thread records the event.
  void wait() const;
  /// Returns the seconds between the moments when the streams reached `earlier` and this event, on
  /// the device's clock. Throws ContractError unless both come from make_timed_event of one device,
  /// have been recorded, and have been waited for. Always 0 on the meta device.
  [[nodiscard]] double seconds_since(Event earlier) const;

  /// Returns the backend's object behind the handle, for the library itself; null if it is empty.
  [[nodiscard]] device::EventState* state() const noexcept { return state_; }
  /// Returns whether the handle is not empty.
  [[nodiscard]] explicit operator bool() const noexcept { return state_ != nullptr; }

 private:
  device::EventState* state_ = nullptr;
};

/// An in-order queue of work on a device. It is a handle: trivially copyable, and owned by an
/// OwnedStream that must outlive its use.
///
/// Time:    `record` and `wait_for` enqueue; `wait` blocks the calling thread. A stream of kind
///          *caller* (the compute stream of a CPU rank) has no thread of its own: work runs before
///          the call that enqueues it returns, and `wait_for` blocks until the event is reached.
/// Errors:  work that throws ends its stream: later work on it is skipped, and the error is thrown
///          by `wait` and `rethrow`. A stream that waits for an event recorded after that work ends
///          with the same error; events recorded before it pass. A stream of kind *caller* throws
///          the error at once, and again for everything that is enqueued later.
/// Threads: one thread at a time may enqueue.
class Stream {
 public:
  /// An empty handle; using it throws ContractError.
  Stream() = default;
  /// The handle of `state`, for backends.
  explicit Stream(device::StreamState* state) noexcept : state_{state} {}

  /// Places `event` after all work enqueued so far. Recording it again moves it.
  void record(Event event) const;
  /// Makes work enqueued after this call wait for the work before the last recorded mark of
  /// `event`. Later recordings of the event do not matter. An event that was never recorded delays
  /// nothing.
  void wait_for(Event event) const;
  /// Blocks until all enqueued work has finished; throws the stream's error if it has one.
  void wait() const;
  /// Throws the stream's error if it has one; does not block.
  void rethrow() const;

  /// Enqueues `work`, which runs on a thread of the host when the stream reaches it. It must
  /// neither throw nor enqueue. It is meant for instruments: on CUDA it delays the stream by some
  /// microseconds. The meta device drops it.
  void call(std::function<void()> work) const;

  /// Enqueues a request for the time: `told` is called with the moment when the stream reaches this
  /// point, in nanoseconds on the clock of trace::now_ns. It must neither throw nor enqueue, and
  /// the request does not delay the stream.
  ///
  /// On a CPU `told` is called at that moment. On CUDA the moment is taken from the device's clock,
  /// and `told` is called later, in the order of the requests, by a thread that enqueues here or
  /// waits; all calls have been made after `wait` and at the stream's end. It is never called on
  /// the meta device, nor for a graph that was not launched.
  void tell_time(std::function<void(std::int64_t)> told) const;

  /// Returns the cudaStream_t of a CUDA stream; null for any other stream, including one of host
  /// work.
  [[nodiscard]] void* native() const noexcept;
  /// Returns the backend's object behind the handle, for the library itself; null if it is empty.
  [[nodiscard]] device::StreamState* state() const noexcept { return state_; }
  /// Returns whether the handle is not empty.
  [[nodiscard]] explicit operator bool() const noexcept { return state_ != nullptr; }

 private:
  device::StreamState* state_ = nullptr;
};

}  // namespace tessera
