#pragma once

#include "kernels/attention/attention.hpp"

namespace tessera::kernels::cuda {

/// Whether cuDNN's fused attention computes this: in a module that has cuDNN, what suits_cudnn,
/// with nothing dropped, and with all arrays at multiples of 16 bytes; backward where
/// has_deterministic_cudnn, or the stream's order of sums may be any. Never by failure: what cuDNN
/// then cannot do is an error.
[[nodiscard]] bool cudnn_computes(const AttentionForward& args, Stream stream);
[[nodiscard]] bool cudnn_computes(const AttentionBackward& args, Stream stream);

/// Attention as its header says, with its log_sum_exp, in the deterministic form unless the
/// stream's order of sums may be any; args.workspace has cudnn_workspace_bytes, or, backward,
/// args.workspace_elems. The handle and the plans of the last 64 shapes are kept with the stream,
/// and what they take of the device when they are made is noted as a library's. Errors: DeviceError
/// with cuDNN's reason, and how to do without it.
void cudnn_attention_forward(const AttentionForward& args, Stream stream);
void cudnn_attention_backward(const AttentionBackward& args, Stream stream);

}  // namespace tessera::kernels::cuda
