#include <mutex>
#include <utility>

#include "emulated_cuda/api.hpp"
#include "emulated_cuda/misuse.hpp"
#include "emulated_cuda/settings.hpp"
#include "emulated_cuda/stream.hpp"
#include "emulated_cuda/stream_task.hpp"

namespace emulated_cuda {
namespace {

constexpr int kHighestPriority = -5;

/// Checks a wait of the host, which invalidates the stream's capture.
cudaError_t check_not_captured(CUstream_st& stream) {
  const std::scoped_lock lock{capture_mutex()};
  if (!stream.capture) { return cudaSuccess; }
  invalidate(stream);
  return cudaErrorStreamCaptureUnsupported;
}

std::shared_ptr<Moment> moment_of(cudaEvent_t event) {
  const std::scoped_lock lock{capture_mutex()};
  return event->moment;
}

cudaError_t check_not_captured(const std::shared_ptr<Moment>& moment) {
  if (!moment->capture) { return cudaSuccess; }
  const std::scoped_lock lock{capture_mutex()};
  moment->capture->invalid = true;
  return cudaErrorCapturedEvent;
}

cudaError_t record(CUevent_st& event, CUstream_st& stream) {
  auto moment = std::make_shared<Moment>();
  if (stream.capture) {
    if (stream.capture->invalid) { return cudaErrorStreamCaptureInvalidated; }
    moment->capture = stream.capture;
    moment->node = stream.last_node;
  } else {
    Task task;
    task.name = "cudaEventRecord";
    task.work = [moment] {
      moment->time = std::chrono::steady_clock::now();
      moment->mark.reach();
    };
    stream.push(std::move(task));
  }
  event.moment = std::move(moment);
  return cudaSuccess;
}

/// At each launch the event marks the moment when the graph reaches this node.
cudaError_t record_external(CUevent_st& event, CUstream_st& stream) {
  if (!stream.capture) { return record(event, stream); }
  if (stream.capture->invalid) { return cudaErrorStreamCaptureInvalidated; }
  Graph::Node node;
  node.kind = Graph::Kind::record;
  node.after = {stream.last_node};
  node.task.name = "cudaEventRecordWithFlags";
  node.task.access = Task::Access::none;
  node.event = &event;
  add_node(stream, std::move(node));
  return cudaSuccess;
}

/// Makes the stream part of the capture, after the moment's node.
cudaError_t join(CUstream_st& stream, const Moment& moment) {
  if (!moment.capture->active) { return cudaErrorCapturedEvent; }
  if (stream.capture && stream.capture != moment.capture) {
    invalidate(stream);
    moment.capture->invalid = true;
    return cudaErrorStreamCaptureMerge;
  }
  if (moment.capture->invalid) { return cudaErrorStreamCaptureInvalidated; }
  Graph::Node node;
  node.after = {moment.node};
  if (stream.capture) {
    node.after.push_back(stream.last_node);
  } else {
    stream.capture = moment.capture;
    stream.capture->streams.push_back(&stream);
    stream.lane = stream.capture->graph.lanes++;
  }
  add_node(stream, std::move(node));
  return cudaSuccess;
}

/// A driver may run all host functions on one thread.
void run_host_function(cudaHostFn_t function, void* data) {
  static auto* const turn = new std::mutex;
  std::unique_lock lock{*turn, std::defer_lock};
  if (settings().callbacks == 1) { lock.lock(); }
  function(data);
}

cudaError_t wait_for(CUstream_st& stream, const std::shared_ptr<Moment>& moment) {
  if (!moment) { return cudaSuccess; }
  if (moment->capture) { return join(stream, *moment); }
  if (stream.capture) {
    invalidate(stream);
    return cudaErrorStreamCaptureIsolation;
  }
  Task task;
  task.name = "cudaStreamWaitEvent";
  task.work = [moment] { moment->mark.wait(); };
  stream.push(std::move(task));
  return cudaSuccess;
}

}  // namespace

cudaError_t enqueue_library_call(cudaStream_t stream, const char* name,
                                 std::function<void()> work) {
  if (!is_stream(stream)) { return cudaErrorInvalidResourceHandle; }
  Task task;
  task.name = name;
  task.device = stream->device();
  task.access = Task::Access::all;
  task.work = std::move(work);
  return enqueue(stream, std::move(task), Graph::Kind::library);
}

int stream_device(cudaStream_t stream) {
  return is_stream(stream) ? stream->device() : -1;
}

}  // namespace emulated_cuda

using namespace emulated_cuda;

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return api("cudaStreamCreateWithFlags", [&] {
    if (flags != cudaStreamNonBlocking) { return cudaErrorInvalidValue; }
    *stream = new CUstream_st{current_device()};
    return cudaSuccess;
  });
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority) {
  return api("cudaStreamCreateWithPriority", [&] {
    if (flags != cudaStreamNonBlocking || priority > 0 || priority < kHighestPriority) {
      return cudaErrorInvalidValue;
    }
    *stream = new CUstream_st{current_device()};
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  return api("cudaDeviceGetStreamPriorityRange", [&] {
    *least = 0;
    *greatest = kHighestPriority;
    return cudaSuccess;
  });
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return api("cudaStreamDestroy", [&] {
    if (!is_stream(stream)) { return cudaErrorInvalidResourceHandle; }
    if (const cudaError_t status = check_not_captured(*stream); status != cudaSuccess) {
      return status;
    }
    delete stream;
    return cudaSuccess;
  });
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return api("cudaStreamSynchronize", [&] {
    if (!is_stream(stream)) { return cudaErrorInvalidResourceHandle; }
    if (const cudaError_t status = check_not_captured(*stream); status != cudaSuccess) {
      return status;
    }
    stream->wait();
    return cudaSuccess;
  });
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  return api("cudaStreamQuery", [&] {
    if (!is_stream(stream)) { return cudaErrorInvalidResourceHandle; }
    if (const cudaError_t status = check_not_captured(*stream); status != cudaSuccess) {
      return status;
    }
    return stream->idle() ? cudaSuccess : cudaErrorNotReady;
  });
}

cudaError_t cudaStreamGetDevice(cudaStream_t stream, int* device) {
  return api("cudaStreamGetDevice", [&] {
    if (!is_stream(stream)) { return cudaErrorInvalidResourceHandle; }
    *device = stream->device();
    return cudaSuccess;
  });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
  return api("cudaStreamWaitEvent", [&] {
    if (flags != 0) { return cudaErrorInvalidValue; }
    if (!is_stream(stream) || !is_handle(event)) { return cudaErrorInvalidResourceHandle; }
    const std::scoped_lock lock{capture_mutex()};
    return wait_for(*stream, event->moment);
  });
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  return api("cudaLaunchHostFunc", [&] {
    Task task;
    task.name = "a function that cudaLaunchHostFunc was given";
    task.access = Task::Access::none;
    task.work = [=] { run_host_function(function, data); };
    return enqueue(stream, std::move(task), Graph::Kind::host);
  });
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  return api("cudaEventCreateWithFlags", [&] {
    *event = new CUevent_st{current_device(), (flags & cudaEventDisableTiming) == 0, nullptr};
    add_handle(*event);
    return cudaSuccess;
  });
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return cudaEventCreateWithFlags(event, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return api("cudaEventDestroy", [&] {
    if (!remove_handle(event)) { return cudaErrorInvalidResourceHandle; }
    delete event;
    return cudaSuccess;
  });
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return api("cudaEventRecord", [&] {
    if (!is_stream(stream) || !is_handle(event)) { return cudaErrorInvalidResourceHandle; }
    if (event->device != stream->device()) { return cudaErrorInvalidResourceHandle; }
    const std::scoped_lock lock{capture_mutex()};
    return record(*event, *stream);
  });
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags) {
  return api("cudaEventRecordWithFlags", [&] {
    if (flags != cudaEventRecordExternal) { misuse("only external records are emulated"); }
    if (!is_stream(stream) || !is_handle(event)) { return cudaErrorInvalidResourceHandle; }
    if (event->device != stream->device()) { return cudaErrorInvalidResourceHandle; }
    const std::scoped_lock lock{capture_mutex()};
    return record_external(*event, *stream);
  });
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return api("cudaEventSynchronize", [&] {
    if (!is_handle(event)) { return cudaErrorInvalidResourceHandle; }
    const std::shared_ptr<Moment> moment = moment_of(event);
    if (!moment) { return cudaSuccess; }
    const cudaError_t status = check_not_captured(moment);
    if (status == cudaSuccess) { moment->mark.wait(); }
    return status;
  });
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  return api("cudaEventQuery", [&] {
    if (!is_handle(event)) { return cudaErrorInvalidResourceHandle; }
    const std::shared_ptr<Moment> moment = moment_of(event);
    if (!moment) { return cudaSuccess; }
    const cudaError_t status = check_not_captured(moment);
    if (status != cudaSuccess) { return status; }
    return moment->mark.reached() ? cudaSuccess : cudaErrorNotReady;
  });
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to) {
  return api("cudaEventElapsedTime", [&] {
    if (!is_handle(from) || !is_handle(to)) { return cudaErrorInvalidResourceHandle; }
    const std::shared_ptr<Moment> begin = moment_of(from);
    const std::shared_ptr<Moment> end = moment_of(to);
    if (!begin || !end || !from->timed || !to->timed) { return cudaErrorInvalidResourceHandle; }
    if (!begin->mark.reached() || !end->mark.reached()) { return cudaErrorNotReady; }
    *milliseconds = std::chrono::duration<float, std::milli>{end->time - begin->time}.count();
    return cudaSuccess;
  });
}
