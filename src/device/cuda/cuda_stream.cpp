#include "device/cuda/cuda_stream.hpp"

#include <algorithm>
#include <tuple>
#include <utility>

#include "device/cuda/cuda_check.hpp"
#include "tessera/base/error.hpp"

namespace tessera::cuda {

CudaEvent& cuda_event(device::EventState& event) {
  auto* const cuda = dynamic_cast<CudaEvent*>(&event);
  expects(cuda != nullptr, "a CUDA stream takes only events of a CUDA device");
  return *cuda;
}

StreamHandle make_stream_handle(StreamPriority priority) {
  cudaStream_t stream = nullptr;
  if (priority == StreamPriority::usual) {
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    return StreamHandle{stream};
  }
  int least = 0;
  int greatest = 0;
  check(cudaDeviceGetStreamPriorityRange(&least, &greatest), "cudaDeviceGetStreamPriorityRange");
  if (least == greatest) {
    throw DeviceError{
        "the device has streams of one priority only: leave `tuning.channel_priority` at its "
        "default"};
  }
  check(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, greatest),
        "cudaStreamCreateWithPriority");
  return StreamHandle{stream};
}

EventHandle make_event_handle(EventKind kind) {
  cudaEvent_t event = nullptr;
  const unsigned flags = kind == EventKind::timed ? cudaEventDefault : cudaEventDisableTiming;
  check(cudaEventCreateWithFlags(&event, flags), "cudaEventCreateWithFlags");
  return EventHandle{event};
}

CudaEvent::CudaEvent(std::shared_ptr<CaptureState> capture, EventKind kind)
    : capture_{std::move(capture)}, kind_{kind}, handle_{make_event_handle(kind)} {}

void CudaEvent::wait() {
  expects(!is_captured(),
          "an event of a graph is waited for during its capture, when its work has not begun; wait "
          "after the launch");
  const cudaEvent_t event = outside();
  use_device(capture_->ordinal());  // a thread without a device would start the first one
  if (event != nullptr) { check(cudaEventSynchronize(event), "cudaEventSynchronize"); }
  if (host_) { host_->mark.timeline->wait(host_->mark.ticket); }
}

bool CudaEvent::is_reached() const {
  const cudaEvent_t event = outside();
  const cudaError_t status = event == nullptr ? cudaSuccess : cudaEventQuery(event);
  if (status == cudaErrorNotReady) { return false; }
  check(status, "cudaEventQuery");
  if (!host_) { return true; }
  host_->mark.timeline->rethrow(host_->mark.ticket);
  return host_->mark.timeline->passed(host_->mark.ticket);
}

double CudaEvent::seconds_since(const device::EventState& earlier) const {
  const auto* const from = dynamic_cast<const CudaEvent*>(&earlier);
  expects(from != nullptr && from->kind_ == EventKind::timed && kind_ == EventKind::timed,
          "seconds_since needs two events of make_timed_event of a CUDA device");
  float milliseconds = 0.0F;
  const cudaError_t status =
      cudaEventElapsedTime(&milliseconds, from->handle_.get(), handle_.get());
  expects(status != cudaErrorNotReady && status != cudaErrorInvalidResourceHandle,
          "seconds_since needs events of one device that were recorded and waited for");
  check(status, "cudaEventElapsedTime");
  return static_cast<double>(milliseconds) * 1e-3;
}

std::uint32_t* StreamChecks::add(std::string fault) {
  const std::size_t at = faults_.size();
  if (at == blocks_.size() * kBlock) { blocks_.emplace_back(kBlock); }
  std::uint32_t* const flag = blocks_[at / kBlock].at(at % kBlock);
  *flag = 0;
  faults_.push_back(std::move(fault));
  return flag;
}

void StreamChecks::look() {
  const std::vector<std::string> faults = std::exchange(faults_, {});
  for (std::size_t i = 0; i < faults.size(); ++i) {
    if (blocks_[i / kBlock].is_raised(i % kBlock)) { throw ContractError{faults[i]}; }
  }
}

CudaStream::CudaStream(int ordinal, std::shared_ptr<CaptureState> capture,
                       std::shared_ptr<CudaClock> clock, StreamPriority priority)
    : ordinal_{ordinal},
      capture_{std::move(capture)},
      clock_{std::move(clock)},
      handle_{make_stream_handle(priority)} {}

CudaStream::~CudaStream() {
  (void)cudaStreamSynchronize(handle_.get());
  try {
    use_device(ordinal_);
    times_.tell(*clock_, *capture_);
  } catch (...) {  // NOLINT(bugprone-empty-catch): dead device, or no memory: only times are lost
  }
}

cudaStream_t CudaStream::open() {
  rethrow();
  use_device(ordinal_);
  capture_->join(*this);
  return handle_.get();
}

void CudaStream::record(device::EventState& event) {
  CudaEvent& mark = cuda_event(event);
  expects(mark.kind_ == EventKind::plain || !capturing(),
          "a timed event is recorded during the capture of a graph, within which it has no time; "
          "record it outside");
  use_device(ordinal_);
  capture_->join(*this);
  check(cudaEventRecord(mark.handle_.get(), handle_.get()), "cudaEventRecord");
  mark.graph_ = capture_->current();
  if (mark.host_) { mark.host_.reset(); }  // others may be reading an event that never had one
}

void CudaStream::wait_for(device::EventState& event) {
  CudaEvent& mark = cuda_event(event);
  const bool of_this_device = mark.capture_ == capture_;
  expects(of_this_device || (!capturing() && !mark.is_captured()),
          "a stream waits for an event of another device during the capture of a graph, which "
          "cannot hold that; wait before or after the capture");
  if (capturing() && !mark.is_captured()) { return; }
  const std::optional<HostPoint>& host = mark.host_;
  if (host && host->mark.timeline->passed(host->mark.ticket)) { return; }
  const cudaEvent_t point = capturing() ? mark.handle_.get() : mark.outside();
  if (point == nullptr) { return; }
  use_device(ordinal_);
  capture_->join(*this);
  check(cudaStreamWaitEvent(handle_.get(), point, 0), "cudaStreamWaitEvent");
  if (host) { wait_for(*host); }
}

void CudaStream::wait_for(const HostPoint& point) {
  const auto known = std::ranges::find(host_points_, point.word, &HostPoint::word);
  if (known == host_points_.end()) {
    host_points_.push_back(point);
  } else {
    known->mark.ticket = std::max(known->mark.ticket, point.mark.ticket);
  }
  point.word->hold(handle_.get(), point.mark.ticket);
}

void CudaStream::wait() {
  expects(!capturing(),
          "a stream is waited for during the capture of a graph, when its work has not begun; wait "
          "after the launch");
  try {
    use_device(ordinal_);
    check(cudaStreamSynchronize(handle_.get()), "cudaStreamSynchronize");
    times_.tell(*clock_, *capture_);
    checks_.look();
    for (const HostPoint& point : host_points_) { point.mark.timeline->wait(point.mark.ticket); }
    host_points_.clear();
  } catch (...) { end_with(std::current_exception()); }
  rethrow();
}

void StreamEnd::set(std::exception_ptr error) noexcept {
  const std::scoped_lock lock{mutex_};
  if (!error_) { error_ = std::move(error); }
}

void StreamEnd::rethrow() {
  const std::scoped_lock lock{mutex_};
  if (error_) { std::rethrow_exception(error_); }
}

void CudaStream::rethrow() {
  end_->rethrow();
  try {
    for (const HostPoint& point : host_points_) { point.mark.timeline->rethrow(point.mark.ticket); }
  } catch (...) {
    end_with(std::current_exception());
    throw;
  }
}

void CudaStream::end_with(std::exception_ptr error) noexcept {
  end_->set(std::move(error));
}

// An exception must not leave a function that CUDA calls: it would end the process silently.
void CudaStream::call(std::function<void()> work) {
  auto owned = std::make_unique<std::function<void()>>([work = std::move(work), end = end_] {
    try {
      work();
    } catch (...) { end->set(std::current_exception()); }
  });
  const auto run = [](void* data) {
    const std::unique_ptr<std::function<void()>> mine{static_cast<std::function<void()>*>(data)};
    (*mine)();
  };
  check(cudaLaunchHostFunc(open(), run, owned.get()), "cudaLaunchHostFunc");
  // Within a graph it belongs to a launch that happens once: every run captures anew.
  if (capturing()) { return capture_->keep(std::move(owned)); }
  std::ignore = owned.release();
}

void CudaStream::tell_time(std::function<void(std::int64_t)> told) {
  const cudaStream_t stream = open();
  times_.tell(*clock_, *capture_);
  TimeMark mark = times_.mark(std::move(told));
  if (capturing()) {
    // External: at every launch it is also a mark for waits outside the graph.
    check(cudaEventRecordWithFlags(mark.event.get(), stream, cudaEventRecordExternal),
          "cudaEventRecordWithFlags");
    mark.graph = capture_->current();
    return capture_->keep(*this, std::move(mark));
  }
  check(cudaEventRecord(mark.event.get(), stream), "cudaEventRecord");
  times_.add(std::move(mark));
}

void* CudaStream::native() noexcept {
  try {
    capture_->join(*this);
  } catch (...) { end_with(std::current_exception()); }
  return handle_.get();
}

CudaStream& cuda_stream(Stream stream) {
  auto* const cuda = dynamic_cast<CudaStream*>(stream.state());
  expects(cuda != nullptr, "CUDA work is enqueued only on a stream of a CUDA device");
  return *cuda;
}

}  // namespace tessera::cuda
