#include "kernels/attention/attention.hpp"

// In the core: plans for CUDA are made without the module.
namespace tessera::kernels::cuda {

std::int64_t attention_workspace_elems(const AttentionShape& shape, DType /*dtype*/,
                                       int /*threads*/) {
  return shape.batch * shape.heads * shape.seq;
}

}  // namespace tessera::kernels::cuda
