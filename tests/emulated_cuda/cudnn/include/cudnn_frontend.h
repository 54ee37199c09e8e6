// A double of the parts of cuDNN and its frontend that the module uses. Few machines have cuDNN.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#define CUDNN_VERSION 91501
#define CUDNN_FRONTEND_VERSION 11600

using cudnnHandle_t = struct CudnnHandle*;
enum cudnnStatus_t {
  CUDNN_STATUS_SUCCESS = 0,
  CUDNN_STATUS_NOT_INITIALIZED = 1001,
  CUDNN_STATUS_BAD_PARAM = 2000,
};

extern "C" {
std::size_t cudnnGetVersion();
const char* cudnnGetErrorString(cudnnStatus_t status);
cudnnStatus_t cudnnCreate(cudnnHandle_t* handle);
cudnnStatus_t cudnnDestroy(cudnnHandle_t handle);
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream);
}

namespace cudnn_frontend {

enum class DataType_t { FLOAT, HALF, BFLOAT16 };
enum class DiagonalAlignment_t { TOP_LEFT, BOTTOM_RIGHT };
enum class HeurMode_t { A, B, FALLBACK };

struct error_object {
  bool bad = false;
  std::string err_msg;
  [[nodiscard]] bool is_bad() const { return bad; }
};

namespace graph {

struct Tensor_attributes {
  std::int64_t uid = 0;
  std::vector<std::int64_t> dim;
  std::vector<std::int64_t> stride;
  DataType_t type = DataType_t::FLOAT;
  bool has_type = false;
  bool output = false;

  Tensor_attributes& set_uid(std::int64_t value);
  Tensor_attributes& set_dim(const std::vector<std::int64_t>& value);
  Tensor_attributes& set_stride(const std::vector<std::int64_t>& value);
  Tensor_attributes& set_data_type(DataType_t value);
  Tensor_attributes& set_output(bool value);
};
using Tensor = std::shared_ptr<Tensor_attributes>;

/// Options of both directions, with the causal mask.
struct AttentionOptions {
  DiagonalAlignment_t alignment = DiagonalAlignment_t::BOTTOM_RIGHT;
  std::int64_t right_bound = -1;  ///< -1: none
  float scale = 1.0F;
  bool statistics = false;
  bool deterministic = false;
};

template <class Self>
struct AttentionSetters : AttentionOptions {
  Self& set_name(const std::string& /*name*/) { return self(); }
  Self& set_diagonal_alignment(DiagonalAlignment_t value) {
    alignment = value;
    return self();
  }
  Self& set_diagonal_band_right_bound(std::int64_t value) {
    right_bound = value;
    return self();
  }
  Self& set_attn_scale(float value) {
    scale = value;
    return self();
  }

 private:
  friend Self;
  AttentionSetters() = default;
  Self& self() { return static_cast<Self&>(*this); }
};
struct SDPA_attributes : AttentionSetters<SDPA_attributes> {
  SDPA_attributes& set_generate_stats(bool value) {
    statistics = value;
    return *this;
  }
};
struct SDPA_backward_attributes : AttentionSetters<SDPA_backward_attributes> {
  SDPA_backward_attributes& set_deterministic_algorithm(bool value) {
    deterministic = value;
    return *this;
  }
};

/// A graph of a single operation.
class Graph {
 public:
  Graph& set_io_data_type(DataType_t type);
  Graph& set_intermediate_data_type(DataType_t type);
  Graph& set_compute_data_type(DataType_t type);
  [[nodiscard]] Tensor tensor(const Tensor_attributes& attributes);
  [[nodiscard]] std::array<Tensor, 2> sdpa(Tensor q, Tensor k, Tensor v,
                                           const SDPA_attributes& options);
  [[nodiscard]] std::array<Tensor, 3> sdpa_backward(Tensor q, Tensor k, Tensor v, Tensor y,
                                                    Tensor dy, Tensor statistics,
                                                    const SDPA_backward_attributes& options);
  error_object build(cudnnHandle_t handle, const std::vector<HeurMode_t>& modes);
  error_object get_workspace_size(std::int64_t& bytes) const;
  error_object execute(cudnnHandle_t handle, std::unordered_map<std::int64_t, void*>& arrays,
                       void* workspace) const;

 private:
  [[nodiscard]] std::string fault() const;

  DataType_t io_ = DataType_t::FLOAT;
  bool computes_in_fp32_ = false;
  bool is_backward_ = false;
  bool built_ = false;
  mutable bool has_run_ = false;
  AttentionOptions options_;
  std::vector<Tensor> tensors_;  // q, k, v, y, statistics; backward: dy, dq, dk, dv
};

}  // namespace graph
}  // namespace cudnn_frontend
