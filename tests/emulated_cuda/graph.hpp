#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "emulated_cuda/task.hpp"

namespace emulated_cuda {

/// Tasks and their dependencies. An `empty` task joins streams.
struct Graph {
  enum class Kind : std::uint8_t { empty, kernel, copy, fill, host, library, record };
  struct Node {
    Kind kind = Kind::empty;
    int detail = 0;  ///< direction of a copy
    int lane = 0;    ///< nodes of one stream, which run in order
    std::vector<std::size_t> after;
    Task task;
    CUevent_st* event = nullptr;  ///< of a record: the event that each launch marks
  };
  std::vector<Node> nodes;
  int lanes = 0;
};

/// Whether an executable graph of `a` can be updated to `b`: only addresses and numbers differ.
[[nodiscard]] bool same_shape(const Graph& a, const Graph& b);

/// Whether every node is `last` or precedes it.
[[nodiscard]] bool all_lead_to(const Graph& graph, std::size_t last);

/// Runs all nodes and returns when they are done. Lanes run concurrently, as branches of a graph
/// do.
void run_graph(const Graph& graph, std::uint64_t draw);

}  // namespace emulated_cuda
