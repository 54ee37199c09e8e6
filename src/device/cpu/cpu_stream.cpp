#include "device/cpu/cpu_stream.hpp"

#include "device/cpu/cpu_event.hpp"
#include "device/cpu/parallel.hpp"
#include "tessera/base/error.hpp"
#include "tessera/trace/recorder.hpp"

namespace tessera::device {
namespace {

CpuEvent& cpu_event(EventState& event) {
  auto* const cpu = dynamic_cast<CpuEvent*>(&event);
  expects(cpu != nullptr, "a CPU stream takes only events of a CPU device");
  return *cpu;
}

}  // namespace

void enqueue(Stream stream, HostTask task) {
  if (stream.state() != nullptr && stream.state()->skips()) { return; }
  auto* const cpu = dynamic_cast<CpuStream*>(stream.state());
  expects(cpu != nullptr, "host tasks run only on a stream of a CPU device");
  expects(static_cast<bool>(task), "an empty host task cannot be enqueued; pass a function");
  cpu->enqueue(std::move(task));
}

WorkerPool* pool_of(Stream stream) {
  const auto* const cpu = dynamic_cast<CpuStream*>(stream.state());
  expects(cpu != nullptr, "only a stream of a CPU device has threads");
  return cpu->pool();
}

int threads_of(Stream stream) {
  const WorkerPool* const pool = pool_of(stream);
  return pool == nullptr ? 1 : pool->threads();
}

void CpuStream::record(EventState& event) {
  CpuEvent& mark = cpu_event(event);
  if (mark.reached_ns()) {
    enqueue(HostTask{[at = mark.reached_ns()] { *at = trace::now_ns(); }});
  }
  mark.set({timeline_, issued()});
}

void CpuStream::tell_time(std::function<void(std::int64_t)> told) {
  enqueue(HostTask{[told = std::move(told)] { told(trace::now_ns()); }});
}

void CpuStream::wait_for(EventState& event) {
  Mark mark = cpu_event(event).mark();
  if (mark.timeline == nullptr || mark.timeline->passed(mark.ticket)) { return; }
  wait_for_mark(std::move(mark));
}

}  // namespace tessera::device
