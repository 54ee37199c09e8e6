#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/dropout/dropout.hpp"
#include "tessera/base/values.hpp"
#include "tessera/device/stream.hpp"

namespace tessera::kernels {

struct AttentionShape {
  std::int64_t batch;
  std::int64_t seq;
  std::int64_t heads;
  std::int64_t head_size;  ///< hidden = heads * head_size
};

/// Causal softmax attention with scale 1/sqrt(head_size). The T x T matrix of all heads is never
/// held: on a CPU each thread works on one tile of query rows of one head at a time, in its own
/// part of the workspace; on CUDA a block does, on 64 x 64 scores at a time. qkv and y are of one
/// dtype; the arithmetic is fp32. The order of sums depends on the shape alone, and a sample's
/// results on that sample alone; each backend has its own. On CUDA a head has at most 256 elements
/// (ContractError).
///
/// A CUDA module that has cuDNN leaves to it what suits_cudnn (cudnn_rule.hpp: 16 bits, common head
/// sizes) where nothing is dropped and arrays start at multiples of 16 bytes. cuDNN rounds
/// probabilities and their gradients to the dtype before it multiplies them, and its order of sums
/// depends on its version and the kind of device, on the number of samples too; it is the same from
/// run to run.
///
/// Dropout drops probabilities and scales the others: query t of a sample's head h drops key s if
/// word(sample, (h seq + t) round_up(seq, 4) + s) of `key`, as Dropout defines it, says so.
struct AttentionForward {
  ConstValues qkv;     ///< [batch, seq, 3 * hidden]: q, k, v side by side, heads within each
  Values y;            ///< [batch, seq, hidden]
  float* log_sum_exp;  ///< [batch, heads, seq], kept for backward
  float* workspace;    ///< attention_workspace_elems(shape, dtype, threads of the stream)
  AttentionShape shape;
  float dropout = 0.0F;  ///< probability, in [0, 1); 0: none
  DropoutKey key = {};
};
using AttentionForwardKernel = void(const AttentionForward& args, Stream stream);

/// All but log_sum_exp and the workspace are of one dtype; dropout and key are those of forward.
struct AttentionBackward {
  ConstValues qkv;
  ConstValues y;
  const float* log_sum_exp;
  ConstValues dy;  ///< [batch, seq, hidden]
  Values dqkv;     ///< [batch, seq, 3 * hidden], overwritten
  float* workspace;
  AttentionShape shape;
  float dropout = 0.0F;
  DropoutKey key = {};
};
using AttentionBackwardKernel = void(const AttentionBackward& args, Stream stream);

/// fp32 elements that both directions need on a stream of so many threads. On a CPU, for each of
/// them that finds a head to work on a few rows of tiles of one head, never seq^2 * heads, and in
/// 16 bits one head of every tensor in fp32. On CUDA, one for each query row of each head, or, if
/// it is more, what cuDNN would need (128 MiB at most, or, of more than 8,064 tokens, for one head:
/// 2 GiB at most, up to 32,640 tokens), in every build.
using AttentionWorkspace = std::int64_t(const AttentionShape& shape, DType dtype, int threads);

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
}  // namespace cuda

}  // namespace tessera::kernels
