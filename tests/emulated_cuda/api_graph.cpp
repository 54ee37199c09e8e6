#include <algorithm>
#include <chrono>
#include <memory>
#include <mutex>
#include <utility>

#include "emulated_cuda/api.hpp"
#include "emulated_cuda/graph.hpp"
#include "emulated_cuda/misuse.hpp"
#include "emulated_cuda/stream.hpp"

struct CUgraph_st {
  std::shared_ptr<const emulated_cuda::Graph> graph;
};

struct CUgraphExec_st {
  std::shared_ptr<const emulated_cuda::Graph> graph;
  /// Serializes launches.
  std::shared_ptr<std::mutex> runs = std::make_shared<std::mutex>();
};

namespace emulated_cuda {
namespace {

void begin(CUstream_st& stream) {
  stream.capture = std::make_shared<Capture>();
  stream.capture->origin = &stream;
  stream.capture->streams = {&stream};
  stream.capture->graph.lanes = 1;
  stream.lane = 0;
  add_node(stream, {});
}

cudaError_t end(CUstream_st& stream, cudaGraph_t* graph) {
  *graph = nullptr;
  if (!stream.capture) { return cudaErrorIllegalState; }
  const std::shared_ptr<Capture> capture = stream.capture;
  if (capture->origin != &stream) {
    capture->invalid = true;
    return cudaErrorStreamCaptureUnmatched;
  }
  for (CUstream_st* const taking_part : capture->streams) { taking_part->capture = nullptr; }
  capture->active = false;
  if (capture->invalid) { return cudaErrorStreamCaptureInvalidated; }
  if (!all_lead_to(capture->graph, stream.last_node)) { return cudaErrorStreamCaptureUnjoined; }
  *graph = new CUgraph_st{std::make_shared<const Graph>(std::move(capture->graph))};
  add_handle(*graph);
  return cudaSuccess;
}

/// The graph for one launch. Its events now mark moments of this launch. Call with capture_mutex()
/// held.
std::shared_ptr<const Graph> with_moments(const std::shared_ptr<const Graph>& graph) {
  const auto records = [](const Graph::Node& node) { return node.kind == Graph::Kind::record; };
  if (std::ranges::none_of(graph->nodes, records)) { return graph; }
  auto launched = std::make_shared<Graph>(*graph);
  for (Graph::Node& node : launched->nodes) {
    if (!records(node)) { continue; }
    if (!is_handle(node.event)) { misuse("a graph records an event that has been destroyed"); }
    auto moment = std::make_shared<Moment>();
    node.task.work = [moment] {
      moment->time = std::chrono::steady_clock::now();
      moment->mark.reach();
    };
    node.event->moment = std::move(moment);
  }
  return launched;
}

}  // namespace
}  // namespace emulated_cuda

using namespace emulated_cuda;

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  return api("cudaStreamBeginCapture", [&] {
    if (!is_stream(stream)) { return cudaErrorInvalidResourceHandle; }
    if (mode != cudaStreamCaptureModeRelaxed) { misuse("only relaxed captures are emulated"); }
    const std::scoped_lock lock{capture_mutex()};
    if (stream->capture) { return cudaErrorIllegalState; }
    begin(*stream);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  if (!is_stream(stream)) { return report(cudaErrorInvalidResourceHandle); }
  const std::scoped_lock lock{capture_mutex()};
  const cudaError_t status = end(*stream, graph);  // the capture ends even on failure
  return api("cudaStreamEndCapture", [&] { return status; });
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  return api("cudaStreamIsCapturing", [&] {
    if (!is_stream(stream)) { return cudaErrorInvalidResourceHandle; }
    const std::scoped_lock lock{capture_mutex()};
    *status = !stream->capture           ? cudaStreamCaptureStatusNone
              : stream->capture->invalid ? cudaStreamCaptureStatusInvalidated
                                         : cudaStreamCaptureStatusActive;
    return cudaSuccess;
  });
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph,
                                 unsigned long long flags) {
  return api("cudaGraphInstantiate", [&] {
    if (flags != 0 || !is_handle(graph)) { return cudaErrorInvalidValue; }
    *exec = new CUgraphExec_st{graph->graph};
    add_handle(*exec);
    return cudaSuccess;
  });
}

cudaError_t cudaGraphExecUpdate(cudaGraphExec_t exec, cudaGraph_t graph,
                                cudaGraphExecUpdateResultInfo* result) {
  return api("cudaGraphExecUpdate", [&] {
    if (!is_handle(exec) || !is_handle(graph)) { return cudaErrorInvalidValue; }
    *result = {};
    if (!same_shape(*exec->graph, *graph->graph)) {
      result->result = cudaGraphExecUpdateErrorTopologyChanged;
      return cudaErrorGraphExecUpdateFailure;
    }
    exec->graph = graph->graph;  // earlier launches keep their graph
    return cudaSuccess;
  });
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  return api("cudaGraphLaunch", [&] {
    if (!is_handle(exec)) { return cudaErrorInvalidValue; }
    if (!is_stream(stream)) { return cudaErrorInvalidResourceHandle; }
    const std::scoped_lock lock{capture_mutex()};
    Task task;
    task.name = "cudaGraphLaunch";
    task.access = Task::Access::none;  // the nodes have their own access
    task.work = [graph = with_moments(exec->graph), runs = exec->runs, draw = stream->draw()] {
      const std::scoped_lock one_at_a_time{*runs};
      run_graph(*graph, draw);
    };
    if (stream->capture) { misuse("a graph launched within a capture is not emulated"); }
    stream->push(std::move(task));
    return cudaSuccess;
  });
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, std::size_t* count) {
  return api("cudaGraphGetNodes", [&] {
    if (!is_handle(graph) || nodes != nullptr) { return cudaErrorInvalidValue; }
    *count = static_cast<std::size_t>(std::ranges::count_if(
        graph->graph->nodes,
        [](const Graph::Node& node) { return node.kind != Graph::Kind::empty; }));
    return cudaSuccess;
  });
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  return api("cudaGraphDestroy", [&] {
    if (!remove_handle(graph)) { return cudaErrorInvalidValue; }
    delete graph;
    return cudaSuccess;
  });
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  return api("cudaGraphExecDestroy", [&] {
    if (!remove_handle(exec)) { return cudaErrorInvalidValue; }
    delete exec;
    return cudaSuccess;
  });
}
