#include "tessera/device/stream.hpp"

#include <utility>

#include "device/stream_state.hpp"
#include "tessera/base/error.hpp"

namespace tessera {
namespace {

device::StreamState& checked(device::StreamState* stream) {
  expects(stream != nullptr, "this Stream is empty: take one from a device");
  return *stream;
}

device::EventState& checked(device::EventState* event) {
  expects(event != nullptr, "this Event is empty: take one from a device");
  return *event;
}

}  // namespace

void Event::wait() const {
  checked(state_).wait();
}

double Event::seconds_since(Event earlier) const {
  return checked(state_).seconds_since(checked(earlier.state()));
}

void Stream::record(Event event) const {
  checked(state_).record(checked(event.state()));
}

void Stream::wait_for(Event event) const {
  checked(state_).wait_for(checked(event.state()));
}

void Stream::wait() const {
  checked(state_).wait();
}

void Stream::rethrow() const {
  checked(state_).rethrow();
}

void Stream::call(std::function<void()> work) const {
  checked(state_).call(std::move(work));
}

void Stream::tell_time(std::function<void(std::int64_t)> told) const {
  checked(state_).tell_time(std::move(told));
}

void* Stream::native() const noexcept {
  return state_ == nullptr ? nullptr : state_->native();
}

}  // namespace tessera
