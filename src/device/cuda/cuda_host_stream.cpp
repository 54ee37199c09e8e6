#include "device/cuda/cuda_host_stream.hpp"

#include <exception>
#include <utility>

#include "device/cpu/cpu_event.hpp"
#include "device/cuda/cuda_check.hpp"

// There is no cycle of waits: everything that a ticket depends on was given to the device before
// any stream waits for that ticket. So streams that share a hardware queue, which runs work in the
// order given, reach it too.
namespace tessera::cuda {

CudaHostStream::CudaHostStream(int ordinal, const std::shared_ptr<CaptureState>& capture,
                               std::shared_ptr<CudaClock> clock, std::string_view name)
    : gate_{ordinal, capture, std::move(clock)},
      word_{std::make_shared<CudaHostWord>(gate_.handle())},
      mark_{capture},
      worker_{name} {
  worker_.tell(word_);
}

// The device reaches everything that the worker waits for, or has failed and never will.
CudaHostStream::~CudaHostStream() {
  try {
    check(cudaStreamSynchronize(gate_.handle()), "cudaStreamSynchronize");
  } catch (...) { told_->end(std::current_exception()); }
}

void CudaHostStream::refuse_capture() const {
  expects(!gate_.capturing(),
          "a stream of host work is used during the capture of a graph, which cannot hold it; use "
          "it before or after the capture");
}

// The event is recorded on the gate, too: CUDA must see what orders the device's work.
void CudaHostStream::record(device::EventState& event) {
  refuse_capture();
  CudaEvent& mark = cuda_event(event);
  expects(mark.kind_ == EventKind::plain,
          "a timed event is recorded on a stream of host work, for which no device knows a time; "
          "record it on a stream of the device");
  gate_.record(mark);
  device::CpuEvent here{device::CpuEvent::Kind::plain};
  worker_.record(here);
  mark.host_ = HostPoint{here.mark(), word_};
}

void CudaHostStream::wait_for(device::EventState& event) {
  refuse_capture();
  CudaEvent& mark = cuda_event(event);
  if (mark.host_) {
    gate_.wait_for(mark);
    device::CpuEvent there{device::CpuEvent::Kind::plain};
    there.set(mark.host_->mark);
    return worker_.wait_for(there);
  }
  if (mark.is_reached()) { return; }
  gate_.wait_for(mark);
  tell_worker();
}

void CudaHostStream::follow(cudaEvent_t point) {
  check(cudaStreamWaitEvent(gate_.handle(), point, 0), "cudaStreamWaitEvent");
  tell_worker();
}

void CudaHostStream::precede(CudaStream& later) {
  record(mark_);
  later.wait_for(mark_);
}

// Done by a host function, which takes no time: if the worker waited within CUDA instead, a thread
// that frees memory, and so waits for the device, could block it.
void CudaHostStream::tell_worker() {
  device::CpuEvent next{device::CpuEvent::Kind::plain};
  next.set({told_, asked_ + 1});
  worker_.wait_for(next);
  ++asked_;
  try {
    gate_.call([told = told_] { told->reach_next(nullptr); });
  } catch (...) {
    told_->end(std::current_exception());
    throw;
  }
}

void CudaHostStream::wait() {
  refuse_capture();
  try {
    gate_.wait();
  } catch (...) { told_->end(std::current_exception()); }
  worker_.wait();
  gate_.rethrow();
}

void CudaHostStream::rethrow() {
  worker_.rethrow();
  gate_.rethrow();
}

void CudaHostStream::call(std::function<void()> work) {
  refuse_capture();
  rethrow();
  worker_.call(std::move(work));
}

void CudaHostStream::tell_time(std::function<void(std::int64_t)> told) {
  refuse_capture();
  rethrow();
  worker_.tell_time(std::move(told));
}

}  // namespace tessera::cuda
