#include <algorithm>

#include "kernels/attention/attention.hpp"
#include "kernels/attention/cudnn_rule.hpp"

// This file is part of the core: plans for CUDA are made without the module.
namespace tessera::kernels::cuda {

// cuDNN's workspace is counted whether the module has cuDNN or not: a plan holds for both.
std::int64_t attention_workspace_elems(const AttentionShape& shape, DType dtype,
                                       const device::StreamKernels& on) {
  const std::size_t cudnn =
      cudnn_workspace_bytes(shape, dtype, on.attention_gradients, on.attention_bytes) /
      sizeof(float);
  return std::max(shape.batch * shape.heads * shape.seq, static_cast<std::int64_t>(cudnn));
}

std::int64_t attention_backward_workspace_elems(const AttentionShape& shape, DType dtype,
                                                const device::StreamKernels& on) {
  const std::size_t whole =
      cudnn_whole_workspace_bytes(shape, dtype, on.attention_gradients, on.attention_bytes) /
      sizeof(float);
  return std::max(attention_workspace_elems(shape, dtype, on), static_cast<std::int64_t>(whole));
}

}  // namespace tessera::kernels::cuda
