#include "device/cuda/cuda_capture.hpp"

#include <algorithm>
#include <tuple>

#include "device/cuda/cuda_check.hpp"
#include "device/cuda/cuda_host_stream.hpp"
#include "device/cuda/cuda_stream.hpp"

namespace tessera::cuda {
namespace {

/// `later` waits until `earlier` has reached its current point.
void order(cudaStream_t earlier, cudaStream_t later, cudaEvent_t mark) {
  check(cudaEventRecord(mark, earlier), "cudaEventRecord");
  check(cudaStreamWaitEvent(later, mark, 0), "cudaStreamWaitEvent");
}

/// Null: the stream is one of the device's.
CudaHostStream* host_stream(Stream stream) {
  return dynamic_cast<CudaHostStream*>(stream.state());
}

}  // namespace

CaptureState::CaptureState(int ordinal)
    : ordinal_{ordinal}, begin_{make_event_handle()}, joined_end_{make_event_handle()} {}

cudaEvent_t CaptureState::end_of(std::uint64_t graph) const noexcept {
  const std::scoped_lock lock{mutex_};
  const End* first = nullptr;
  for (const End& end : ends_) {
    const bool fits = end.graph >= graph && end.graph != 0;
    if (fits && (first == nullptr || end.graph < first->graph)) { first = &end; }
  }
  return first == nullptr ? nullptr : first->event.get();
}

void CaptureState::note_end(cudaStream_t origin) {
  const std::scoped_lock lock{mutex_};
  End& oldest = *std::ranges::min_element(ends_, {}, &End::graph);
  check(cudaEventRecord(oldest.event.get(), origin), "cudaEventRecord");
  oldest.graph = launched_ = number_;
}

void CaptureState::join(CudaStream& stream) {
  if (current_ == 0 || std::ranges::find(joined_, &stream) != joined_.end()) { return; }
  check(cudaStreamWaitEvent(stream.handle(), begin_.get(), 0), "cudaStreamWaitEvent");
  joined_.push_back(&stream);
}

void CaptureState::end_graphs(const std::exception_ptr& error) noexcept {
  const std::scoped_lock lock{graphs_mutex_};
  if (!ended_) { ended_ = error; }
  // A graph that is running is destroyed when it has ended.
  for (CudaGraph* const graph : graphs_) { graph->exec_ = {}; }
}

CudaGraph::CudaGraph(CaptureState& state) : state_{state} {
  const std::scoped_lock lock{state_.graphs_mutex_};
  state_.graphs_.push_back(this);
}

CudaGraph::~CudaGraph() {
  const std::scoped_lock lock{state_.graphs_mutex_};
  std::erase(state_.graphs_, this);
}

void CudaGraph::run(Stream origin, const std::vector<Stream>& others,
                    const std::function<void()>& enqueue) {
  expects(state_.current() == 0,
          "a graph is captured within another; end the first capture before the second");
  CudaStream& first = cuda_stream(origin);
  for (const Stream other : others) {
    if (auto* const host = host_stream(other)) {
      host->precede(first);
    } else {
      order(cuda_stream(other).handle(), first.handle(), state_.begin_.get());
    }
  }
  if (const cudaEvent_t before = state_.last_end(); before != nullptr) {
    check(cudaStreamWaitEvent(first.handle(), before, 0), "cudaStreamWaitEvent");
  }
  launch(first, enqueue);
  state_.note_end(first.handle());
  for (const Stream other : others) {
    if (auto* const host = host_stream(other)) {
      host->follow(state_.last_end());
    } else {
      check(cudaStreamWaitEvent(cuda_stream(other).handle(), state_.last_end(), 0),
            "cudaStreamWaitEvent");
    }
  }
}

void CudaGraph::launch(CudaStream& origin, const std::function<void()>& enqueue) {
  state_.fate_ = std::make_shared<std::atomic<GraphFate>>(GraphFate::captured);
  try {
    const GraphHandle graph = capture(origin, enqueue);
    const std::scoped_lock lock{state_.graphs_mutex_};
    if (state_.ended_) { std::rethrow_exception(state_.ended_); }
    update(graph);
    check(cudaGraphLaunch(exec_.get(), origin.handle()), "cudaGraphLaunch");
  } catch (...) {
    *state_.fate_ = GraphFate::dropped;
    state_.calls_.clear();
    state_.marks_.clear();
    throw;
  }
  *state_.fate_ = GraphFate::launched;
  for (auto& call : state_.calls_) { std::ignore = call.release(); }
  state_.calls_.clear();
  for (auto& [stream, mark] : state_.marks_) { stream->times().add(std::move(mark)); }
  state_.marks_.clear();
}

GraphHandle CudaGraph::capture(CudaStream& origin, const std::function<void()>& enqueue) {
  // Relaxed: host work during `enqueue` (such as waiting for an earlier step) is allowed.
  check(cudaStreamBeginCapture(origin.handle(), cudaStreamCaptureModeRelaxed),
        "cudaStreamBeginCapture");
  state_.current_ = ++state_.number_;
  state_.joined_ = {&origin};
  GraphHandle graph;
  try {
    check(cudaEventRecord(state_.begin_.get(), origin.handle()), "cudaEventRecord");
    enqueue();
  } catch (...) {
    try {
      end_capture(origin, &graph);
    } catch (const DeviceError&) {  // the first error is the cause
    }
    throw;
  }
  end_capture(origin, &graph);
  return graph;
}

void CudaGraph::end_capture(CudaStream& origin, GraphHandle* graph) {
  cudaGraph_t captured = nullptr;
  cudaError_t status = cudaSuccess;
  for (CudaStream* const stream : state_.joined_) {
    if (stream == &origin || status != cudaSuccess) { continue; }
    status = cudaEventRecord(state_.joined_end_.get(), stream->handle());
    if (status == cudaSuccess) {
      status = cudaStreamWaitEvent(origin.handle(), state_.joined_end_.get(), 0);
    }
  }
  const cudaError_t ended = cudaStreamEndCapture(origin.handle(), &captured);
  state_.current_ = 0;
  state_.joined_.clear();
  *graph = GraphHandle{captured};
  check(status, "joining the streams of a graph");
  check(ended, "cudaStreamEndCapture");
}

void CudaGraph::update(const GraphHandle& graph) {
  if (exec_.get() != nullptr) {
    cudaGraphExecUpdateResultInfo result{};
    if (cudaGraphExecUpdate(exec_.get(), graph.get(), &result) == cudaSuccess) { return; }
    (void)cudaGetLastError();  // of another shape: instantiated anew
    exec_ = {};
  }
  cudaGraphExec_t exec = nullptr;
  check(cudaGraphInstantiate(&exec, graph.get(), 0), "cudaGraphInstantiate");
  exec_ = GraphExecHandle{exec};
}

}  // namespace tessera::cuda
