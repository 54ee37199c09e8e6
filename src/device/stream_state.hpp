#pragma once

namespace tessera {

/// What an Event points to. Backends derive; `Stream` members pass it through.
class EventState {
 public:
  virtual ~EventState() = default;
  EventState(const EventState&) = delete;
  EventState& operator=(const EventState&) = delete;

  virtual void wait() = 0;

 protected:
  EventState() = default;
};

/// What a Stream points to: the contract of each call is that of the Stream's member. The
/// destructor finishes (or, after an error, skips) what is enqueued.
class StreamState {
 public:
  virtual ~StreamState() = default;
  StreamState(const StreamState&) = delete;
  StreamState& operator=(const StreamState&) = delete;

  virtual void record(EventState& event) = 0;
  virtual void wait_for(EventState& event) = 0;
  virtual void wait() = 0;
  virtual void rethrow() = 0;
  [[nodiscard]] virtual void* native() noexcept = 0;
  /// Whether work enqueued here is dropped: on a device that only counts.
  [[nodiscard]] virtual bool skips() const noexcept { return false; }

 protected:
  StreamState() = default;
};

}  // namespace tessera
