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
    int detail = 0;  ///< of copies: the direction
    int lane = 0;    ///< nodes of one lane follow each other: they were given to one stream
    std::vector<std::size_t> after;
    Task task;
    CUevent_st* event = nullptr;  ///< of a record: whose moment each launch is to reach
  };
  std::vector<Node> nodes;
  int lanes = 0;
};

/// Whether a graph made of `a` may be updated to `b`: only addresses and numbers differ.
[[nodiscard]] bool same_shape(const Graph& a, const Graph& b);

/// Every node that is not before `last`, and is not `last`.
[[nodiscard]] bool all_lead_to(const Graph& graph, std::size_t last);

/// Runs all nodes; lanes run beside each other, as branches of a graph do. Returns when all have
/// run.
void run_graph(const Graph& graph, std::uint64_t draw);

}  // namespace emulated_cuda
