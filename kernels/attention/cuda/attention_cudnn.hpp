#pragma once

#include "kernels/attention/attention.hpp"

namespace tessera::kernels::cuda {

/// Whether cuDNN's fused attention computes this: the module has cuDNN, suits_cudnn holds, nothing
/// is dropped, first_key is null, and all arrays start at multiples of 16 bytes. Backward also
/// needs has_deterministic_cudnn, or a stream whose order of sums may be any. There is no fallback
/// at run time: a failure of cuDNN is an error.
[[nodiscard]] bool cudnn_computes(const AttentionForward& args, Stream stream);
[[nodiscard]] bool cudnn_computes(const AttentionBackward& args, Stream stream);

/// Attention as declared in its header, with its log_sum_exp, deterministic unless the stream's
/// order of sums may be any. args.workspace holds cudnn_workspace_bytes, or, backward,
/// args.workspace_elems. The stream keeps the handle and the plans of the last 64 shapes; the
/// device memory that creating them takes is recorded as a library's. Errors: DeviceError with
/// cuDNN's reason, and how to do without cuDNN.
void cudnn_attention_forward(const AttentionForward& args, Stream stream);
void cudnn_attention_backward(const AttentionBackward& args, Stream stream);

}  // namespace tessera::kernels::cuda
