#include <exception>

#include "device/cpu/cpu_stream.hpp"

namespace tessera::device {

void CallerStream::enqueue(HostTask task) {
  timeline().rethrow();
  try {
    task();
  } catch (...) {
    end_with_current_exception();
    throw;
  }
}

void CallerStream::wait_for_mark(Mark mark) {
  timeline().rethrow();
  try {
    mark.timeline->wait(mark.ticket);
  } catch (...) {
    // Later work of this stream would read data that the other has not produced.
    end_with_current_exception();
    throw;
  }
}

void CallerStream::end_with_current_exception() noexcept {
  ++issued_;
  timeline().reach_next(std::current_exception());
}

}  // namespace tessera::device
