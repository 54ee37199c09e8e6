// Which graphs can be built, and the device memory that they take, as in cuDNN and its frontend.
#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <unordered_map>

#include "emulated_cuda/api.hpp"
#include "emulated_cuda/cudnn/attention.hpp"
#include "emulated_cuda/cudnn/handle.hpp"
#include "emulated_cuda/settings.hpp"
#include "emulated_cuda/stream_task.hpp"
#include "kernels/attention/cudnn_rule.hpp"

using emulated_cuda::AttentionCall;
using emulated_cuda::cudnn_settings;

namespace cudnn_frontend::graph {
namespace {

error_object failed(std::string why) {
  return {true, std::move(why)};
}

bool lies_in_order(const Tensor_attributes& tensor) {
  return tensor.stride.size() == 4 && tensor.stride[3] == 1 &&
         std::ranges::all_of(tensor.stride, [](std::int64_t stride) { return stride > 0; });
}

}  // namespace

Tensor_attributes& Tensor_attributes::set_uid(std::int64_t value) {
  uid = value;
  return *this;
}
Tensor_attributes& Tensor_attributes::set_dim(const std::vector<std::int64_t>& value) {
  dim = value;
  return *this;
}
Tensor_attributes& Tensor_attributes::set_stride(const std::vector<std::int64_t>& value) {
  stride = value;
  return *this;
}
Tensor_attributes& Tensor_attributes::set_data_type(DataType_t value) {
  type = value;
  has_type = true;
  return *this;
}
Tensor_attributes& Tensor_attributes::set_output(bool value) {
  output = value;
  return *this;
}

Graph& Graph::set_io_data_type(DataType_t type) {
  io_ = type;
  return *this;
}
Graph& Graph::set_intermediate_data_type(DataType_t /*type*/) {
  return *this;
}
Graph& Graph::set_compute_data_type(DataType_t type) {
  computes_in_fp32_ = type == DataType_t::FLOAT;
  return *this;
}

Tensor Graph::tensor(const Tensor_attributes& attributes) {
  return std::make_shared<Tensor_attributes>(attributes);
}

std::array<Tensor, 2> Graph::sdpa(Tensor q, Tensor k, Tensor v, const SDPA_attributes& options) {
  options_ = options;
  const std::array<Tensor, 2> made{tensor({}), tensor({})};
  tensors_ = {q, k, v, made[0], made[1]};
  return made;
}

std::array<Tensor, 3> Graph::sdpa_backward(Tensor q, Tensor k, Tensor v, Tensor y, Tensor dy,
                                           Tensor statistics,
                                           const SDPA_backward_attributes& options) {
  options_ = options;
  is_backward_ = true;
  const std::array<Tensor, 3> made{tensor({}), tensor({}), tensor({})};
  tensors_ = {q, k, v, y, statistics, dy, made[0], made[1], made[2]};
  return made;
}

std::string Graph::fault() const {
  const std::vector<std::int64_t>& dim = tensors_.at(0)->dim;
  if (dim.size() != 4 || std::ranges::any_of(dim, [](std::int64_t n) { return n <= 0; })) {
    return "dimensions of q";
  }
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    const Tensor_attributes& tensor = *tensors_[i];
    const bool statistics = i == 4;
    std::vector<std::int64_t> expected = dim;
    if (statistics) { expected[3] = 1; }
    if (tensor.dim != expected || !lies_in_order(tensor)) { return "shape of a tensor"; }
    if (statistics != (tensor.has_type && tensor.type == DataType_t::FLOAT)) {
      return "type of a tensor";
    }
    const bool is_output = is_backward_ ? i >= 6 : i >= 3;
    if (tensor.output != is_output) { return "outputs"; }
  }
  if (!computes_in_fp32_ || io_ == DataType_t::FLOAT) { return "types"; }
  if (!is_backward_ && !options_.statistics) { return "the statistics are not asked for"; }
  if (options_.alignment != DiagonalAlignment_t::TOP_LEFT || options_.right_bound != 0) {
    return "only causal attention is doubled";
  }
  if (dim[3] % 8 != 0 || dim[3] > 128) { return "head size"; }
  const int major = emulated_cuda::settings().capability / 10;
  if (options_.deterministic &&
      !tessera::kernels::cuda::has_deterministic_cudnn(cudnn_settings().version, major)) {
    return "Deterministic algorithm is not supported on this architecture";
  }
  return {};
}

error_object Graph::build(cudnnHandle_t handle, const std::vector<HeurMode_t>& modes) {
  if (emulated_cuda::failure_of("cudnnBuild") != cudaSuccess) { return failed("no engine"); }
  if (handle == nullptr || modes.empty()) { return failed("no handle, or no heuristic"); }
  if (std::string what = fault(); !what.empty()) { return failed("GRAPH_NOT_SUPPORTED: " + what); }
  if (!emulated_cuda::load_code(emulated_cuda::kMiB)) { return failed("out of memory"); }
  built_ = true;
  return {};
}

error_object Graph::get_workspace_size(std::int64_t& bytes) const {
  if (!built_) { return failed("not built"); }
  const std::vector<std::int64_t>& dim = tensors_[0]->dim;
  namespace rule = tessera::kernels::cuda;
  const std::size_t of_backward = options_.deterministic
                                      ? rule::cudnn_head_bytes(dim[2])
                                      : rule::cudnn_head_bytes_in_any_order(dim[2], dim[3]);
  const std::size_t head = is_backward_ ? of_backward : 0;
  bytes = dim[0] * dim[1] * static_cast<std::int64_t>(head + cudnn_settings().more_workspace_bytes);
  return {};
}

error_object Graph::execute(cudnnHandle_t handle, std::unordered_map<std::int64_t, void*>& arrays,
                            void* workspace) const {
  if (emulated_cuda::failure_of("cudnnExecute") != cudaSuccess) { return failed("no launch"); }
  if (!built_ || handle == nullptr) { return failed("not built"); }
  AttentionCall call{.dim = tensors_[0]->dim, .type = io_, .options = options_};
  for (const Tensor& tensor : tensors_) {
    const auto found = arrays.find(tensor->uid);
    if (found == arrays.end()) { return failed("an array is missing"); }
    if (reinterpret_cast<std::uintptr_t>(found->second) % 16 != 0) { return failed("misaligned"); }
    call.tensors.push_back({found->second, tensor->stride});
  }
  std::int64_t bytes = 0;
  (void)get_workspace_size(bytes);
  if (!has_run_ && !emulated_cuda::load_code(emulated_cuda::kMiB)) { return failed("memory"); }
  has_run_ = true;
  const cudaError_t enqueued =
      emulated_cuda::enqueue_library_call(handle->stream, "cudnnBackendExecute", [=] {
        if (bytes > 0) { std::memset(workspace, 0xFF, static_cast<std::size_t>(bytes)); }
        call.run();
      });
  return enqueued == cudaSuccess ? error_object{} : failed("CUDNN_STATUS_EXECUTION_FAILED");
}

}  // namespace cudnn_frontend::graph
