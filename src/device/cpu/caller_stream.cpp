#include <exception>

#include "device/cpu/cpu_stream.hpp"

namespace tessera {

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
    // What this stream does next would read what the other has not produced.
    end_with_current_exception();
    throw;
  }
}

void CallerStream::end_with_current_exception() noexcept {
  ++issued_;
  timeline().reach_next(std::current_exception());
}

}  // namespace tessera
