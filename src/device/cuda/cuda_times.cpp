#include "device/cuda/cuda_times.hpp"

#include <cmath>
#include <utility>

#include "device/cuda/cuda_capture.hpp"
#include "device/cuda/cuda_check.hpp"
#include "tessera/trace/recorder.hpp"

namespace tessera::cuda {
namespace {

std::int64_t nanoseconds_between(cudaEvent_t from, cudaEvent_t to) {
  float milliseconds = 0.0F;
  check(cudaEventElapsedTime(&milliseconds, from, to), "cudaEventElapsedTime");
  return std::llround(static_cast<double>(milliseconds) * 1e6);
}

bool is_reached(cudaEvent_t event) {
  const cudaError_t status = cudaEventQuery(event);
  if (status == cudaErrorNotReady) { return false; }
  check(status, "cudaEventQuery");
  return true;
}

bool has_ended(std::uint64_t graph, const CaptureState& graphs) {
  if (graph == 0) { return true; }
  const cudaEvent_t end = graphs.end_of(graph);
  return end != nullptr && is_reached(end);
}

}  // namespace

CudaClock::Moment CudaClock::origin() {
  const std::scoped_lock lock{mutex_};
  if (event_.get() == nullptr) {
    const StreamHandle idle = make_stream_handle();
    EventHandle event = make_event_handle(EventKind::timed);
    // Twice: the first may start up what the second then finds ready.
    for (int i = 0; i < 2; ++i) {
      check(cudaEventRecord(event.get(), idle.get()), "cudaEventRecord");
      check(cudaEventSynchronize(event.get()), "cudaEventSynchronize");
      ns_ = trace::now_ns();
    }
    event_ = std::move(event);
  }
  return {event_.get(), ns_};
}

TimeMark CudaTimes::mark(std::function<void(std::int64_t)> told) {
  const std::scoped_lock lock{mutex_};
  if (spare_.empty()) { return {make_event_handle(EventKind::timed), std::move(told), 0}; }
  EventHandle event = std::move(spare_.back());
  spare_.pop_back();
  return {std::move(event), std::move(told), 0};
}

void CudaTimes::add(TimeMark mark) {
  const std::scoped_lock lock{mutex_};
  marks_.push_back(std::move(mark));
}

void CudaTimes::tell(CudaClock& clock, const CaptureState& graphs) {
  const std::scoped_lock lock{mutex_};
  while (!marks_.empty()) {
    TimeMark& first = marks_.front();
    if (!has_ended(first.graph, graphs) || !is_reached(first.event.get())) { return; }
    const CudaClock::Moment before =
        last_.get() == nullptr ? clock.origin() : CudaClock::Moment{last_.get(), last_ns_};
    const std::int64_t ns = before.ns + nanoseconds_between(before.event, first.event.get());
    first.told(ns);
    if (last_.get() != nullptr) { spare_.push_back(std::move(last_)); }
    last_ = std::move(first.event);
    last_ns_ = ns;
    marks_.pop_front();
  }
}

}  // namespace tessera::cuda
