#include "emulated_cuda/graph.hpp"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "emulated_cuda/fault_handler.hpp"
#include "emulated_cuda/settings.hpp"

namespace emulated_cuda {
namespace {

/// The nodes of a running graph that have run.
class Progress {
 public:
  explicit Progress(std::size_t nodes) : done_(nodes) {}

  void wait_for(const std::vector<std::size_t>& nodes) {
    std::unique_lock lock{mutex_};
    changed_.wait(lock, [&] {
      return std::ranges::all_of(nodes, [&](std::size_t node) { return done_[node]; });
    });
  }
  void finish(std::size_t node) {
    {
      const std::scoped_lock lock{mutex_};
      done_[node] = true;
    }
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<bool> done_;
};

void run_lane(const Graph& graph, int lane, Progress& progress, std::uint64_t draw) {
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const Graph::Node& node = graph.nodes[i];
    if (node.lane != lane) { continue; }
    progress.wait_for(node.after);
    if (node.kind != Graph::Kind::empty) { run_task(node.task, drawn(draw, i)); }
    progress.finish(i);
  }
}

}  // namespace

bool same_shape(const Graph& a, const Graph& b) {
  return std::ranges::equal(a.nodes, b.nodes, [](const Graph::Node& x, const Graph::Node& y) {
    return x.kind == y.kind && x.detail == y.detail && x.after == y.after &&
           x.task.device == y.task.device;
  });
}

bool all_lead_to(const Graph& graph, std::size_t last) {
  std::vector<bool> leads(graph.nodes.size());
  leads[last] = true;
  for (std::size_t i = last + 1; i-- > 0;) {  // a node's dependencies have smaller numbers
    if (!leads[i]) { continue; }
    for (const std::size_t before : graph.nodes[i].after) { leads[before] = true; }
  }
  return std::ranges::all_of(leads, [](bool yes) { return yes; });
}

void run_graph(const Graph& graph, std::uint64_t draw) {
  Progress progress{graph.nodes.size()};
  std::vector<std::thread> others;
  for (int lane = 1; lane < graph.lanes; ++lane) {
    others.emplace_back([&, lane] {
      use_signal_stack();
      run_lane(graph, lane, progress, draw);
    });
  }
  run_lane(graph, 0, progress, draw);
  for (std::thread& other : others) { other.join(); }
}

}  // namespace emulated_cuda
