#pragma once

#include <cstdint>

#include "tessera/base/values.hpp"
#include "tessera/device/stream.hpp"
#include "tessera/kernels/dropout.hpp"

namespace tessera::kernels {

/// Sizes of an attention. hidden = heads * head_size.
struct AttentionShape {
  std::int64_t batch;
  std::int64_t seq;
  std::int64_t heads;
  std::int64_t head_size;  ///< at most 256 on CUDA
};

/// Arguments of attention_forward. qkv and y have one dtype: fp32, bf16 or fp16.
struct AttentionForward {
  ConstValues qkv;     ///< [batch, seq, 3 * hidden]: q, k, v side by side, heads within each
  Values y;            ///< [batch, seq, hidden], overwritten
  float* log_sum_exp;  ///< [batch, heads, seq], overwritten: kept for backward
  float* workspace;    ///< attention_workspace_elems; the caller's, may be shared by all layers
  AttentionShape shape;
  float dropout = 0.0F;  ///< probability with which a probability is dropped, in [0, 1); 0: none
  DropoutKey key = {};
  std::int64_t first_head = 0;  ///< for dropout: the number that the first of these heads has
};

/// Computes causal softmax attention with scale 1 / sqrt(head_size). No seq x seq matrix of all
/// heads is held.
///
/// Dropout drops probabilities and scales the others: query t of a sample's head h, which
/// counts from first_head, drops key s if word(sample, (h seq + t) round_up(seq, 4) + s) of `key`,
/// as `dropout` defines it, says so.
///
/// Bits:   the order of sums depends on the shape alone, and a sample's results on that sample
///         alone; each backend has its own. A CUDA module with cuDNN leaves 16-bit attention of
///         common head sizes without dropout to it: that order depends on cuDNN's version, the kind
///         of device, the number of samples and, backward, the workspace's size, and is the same
///         from run to run, unless WorldOptions::nondeterministic_attention lets backward add in
///         any. In 16 bits CUDA rounds probabilities and the gradients of scores to them where
///         heads have at most 128 elements.
/// Errors: ContractError for a negative size or first_head, heads of 0 elements, a dropout outside
///         [0, 1), a null or fp64 array, dtypes that differ; on CUDA for a head of more than 256
///         elements.
void attention_forward(const AttentionForward& args, Stream stream);

/// Arguments of attention_backward. All but log_sum_exp and the workspace have one dtype; shape,
/// dropout and key are those of forward.
struct AttentionBackward {
  ConstValues qkv;           ///< [batch, seq, 3 * hidden], as in forward
  ConstValues y;             ///< [batch, seq, hidden], from forward
  const float* log_sum_exp;  ///< [batch, heads, seq], from forward
  ConstValues dy;            ///< [batch, seq, hidden]
  Values dqkv;               ///< [batch, seq, 3 * hidden], overwritten
  float* workspace;          ///< attention_workspace_elems
  AttentionShape shape;
  float dropout = 0.0F;
  DropoutKey key = {};
  /// The fp32 elements that `workspace` has; 0: attention_workspace_elems. More of them, up to
  /// attention_backward_workspace_elems, make cuDNN's backward faster.
  std::int64_t workspace_elems = 0;
  std::int64_t first_head = 0;  ///< as in forward
};

/// Computes the gradient of attention_forward. Bits and errors are those of attention_forward, and
/// ContractError for a workspace that is smaller than attention_workspace_elems.
void attention_backward(const AttentionBackward& args, Stream stream);

/// Returns the fp32 elements of workspace that both directions need on this stream, for activations
/// of `dtype`. On a CPU they are a few rows of tiles for each thread that finds a head to work on,
/// never seq^2 * heads, and in 16 bits one head of every tensor in fp32. On CUDA they are one for
/// each query row of each head, or, if it is more, what cuDNN would need (128 MiB at most, or, of
/// more than 8,064 tokens, for one head: 2 GiB at most), in every build. Throws ContractError for a
/// negative size or fp64.
[[nodiscard]] std::int64_t attention_workspace_elems(const AttentionShape& shape, DType dtype,
                                                     Stream stream);

/// Returns the fp32 elements of workspace beyond which attention_backward gains nothing:
/// attention_workspace_elems, or, on CUDA, what cuDNN would need for all heads at a time (2 seq^2
/// bytes for each, with seq rounded up to a multiple of 128), in every build. A caller lends them
/// from memory that is idle. Throws as attention_workspace_elems does.
[[nodiscard]] std::int64_t attention_backward_workspace_elems(const AttentionShape& shape,
                                                              DType dtype, Stream stream);

}  // namespace tessera::kernels
