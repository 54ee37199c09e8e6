#pragma once

#include "device/stream_state.hpp"
#include "tessera/kernels/attention.hpp"

namespace tessera::kernels {

// On a CPU each thread processes one tile of query rows of one head at a time, in its own part of
// the workspace; on CUDA a block does, 64 x 64 scores at a time. For 16-bit dtypes CUDA multiplies
// on tensor cores (attention_cores.hpp). A CUDA module with cuDNN uses it for whatever suits_cudnn
// accepts (cudnn_rule.hpp), if nothing is dropped and arrays start at multiples of 16 bytes. Both
// round probabilities and their gradients to the dtype before they multiply them.

using AttentionForwardKernel = void(const AttentionForward& args, Stream stream);
using AttentionBackwardKernel = void(const AttentionBackward& args, Stream stream);

/// attention_workspace_elems, or attention_backward_workspace_elems, of a stream that computes on
/// `on`.
using AttentionWorkspace = std::int64_t(const AttentionShape& shape, DType dtype,
                                        const device::StreamKernels& on);

namespace reference {
AttentionForwardKernel attention_forward;
AttentionBackwardKernel attention_backward;
}  // namespace reference
namespace cpu {
AttentionForwardKernel attention_forward;
AttentionBackwardKernel attention_backward;
AttentionWorkspace attention_workspace_elems;
}  // namespace cpu
namespace cuda {
AttentionForwardKernel attention_forward;
AttentionBackwardKernel attention_backward;
AttentionWorkspace attention_workspace_elems;
AttentionWorkspace attention_backward_workspace_elems;
}  // namespace cuda

}  // namespace tessera::kernels
