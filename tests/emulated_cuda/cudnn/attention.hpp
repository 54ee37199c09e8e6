#pragma once

#include <cudnn_frontend.h>

#include <cstdint>
#include <vector>

namespace emulated_cuda {

/// One execution: causal attention of [samples, heads, rows, elements], forward or backward.
struct AttentionCall {
  struct Array {
    void* data;
    std::vector<std::int64_t> stride;
  };

  std::vector<std::int64_t> dim;
  cudnn_frontend::DataType_t type;
  cudnn_frontend::graph::AttentionOptions options;
  std::vector<Array> tensors = {};  ///< q, k, v, y, statistics; backward: dy, dq, dk, dv

  /// Computes in double precision and rounds the outputs. Without the deterministic algorithm,
  /// backward adds in another order in every run.
  void run() const;
};

}  // namespace emulated_cuda
